#include "space.hpp"

#include <cstdio>
#include <cuda_runtime.h>
#include <stdexcept>
#include <string>

namespace attention_test {
namespace {

void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess)
        throw std::runtime_error{std::string{what} + ": " + cudaGetErrorString(error)};
}

cudaStream_t native(const assay_stream& s) {
    return static_cast<cudaStream_t>(s.native);
}

}  // namespace

const assay_device_ref& cuda_device() {
    static const assay_device_ref kDevice = [] {
        assay_device_ref d{};
        d.size = sizeof d;
        d.kind = "cuda";
        d.num_units = 1;
        cudaDeviceProp properties{};
        if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
            std::snprintf(d.name, sizeof d.name, "none");
            return d;
        }
        d.arch = 10 * properties.major + properties.minor;
        d.num_units = properties.multiProcessorCount;
        d.l2_bytes = static_cast<std::uint64_t>(properties.l2CacheSize);
        d.shared_optin_bytes = properties.sharedMemPerBlockOptin;
        d.total_bytes = properties.totalGlobalMem;
        std::snprintf(d.name, sizeof d.name, "%.95s", properties.name);
        return d;
    }();
    return kDevice;
}

Space::Space() {
    cudaStream_t stream = nullptr;
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_.device = &cuda_device();
    stream_.native = stream;
}

Space::~Space() {
    for (const Array& a : arrays_) cudaFree(a.device);
    if (graph_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
    cudaStreamDestroy(native(stream_));
}

void* Space::enter(const void* host, std::size_t bytes) {
    for (const Array& a : arrays_)
        if (a.host == host && a.bytes == bytes) return a.device;
    Array a{const_cast<void*>(host), nullptr, bytes};
    check(cudaMalloc(&a.device, bytes == 0 ? 1 : bytes), "cudaMalloc");
    arrays_.push_back(a);
    check(cudaMemcpyAsync(a.device, host, bytes, cudaMemcpyHostToDevice, native(stream_)), "copy to the device");
    return a.device;
}

void Space::leave() {
    wait();
    for (const Array& a : arrays_) {
        check(cudaMemcpy(a.host, a.device, a.bytes, cudaMemcpyDeviceToHost), "copy to the host");
        check(cudaFree(a.device), "cudaFree");
    }
    arrays_.clear();
}

void Space::wait() {
    check(cudaStreamSynchronize(native(stream_)), "a kernel");
}

void Space::update(const void* host, const void* with, std::size_t bytes) {
    for (const Array& a : arrays_)
        if (a.host == host)
            check(cudaMemcpyAsync(a.device, with, bytes, cudaMemcpyHostToDevice, native(stream_)), "update");
}

void Space::begin_capture() {
    check(cudaStreamBeginCapture(native(stream_), cudaStreamCaptureModeThreadLocal), "begin of capture");
}

void Space::end_capture() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check(cudaStreamEndCapture(native(stream_), &graph), "end of capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "graph");
    check(cudaGraphDestroy(graph), "graph");
    graph_ = exec;
}

void Space::replay(int times) {
    for (int i = 0; i < times; ++i)
        check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), native(stream_)), "graph launch");
    wait();
}

}  // namespace attention_test
