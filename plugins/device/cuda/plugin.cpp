// The device kind on an NVIDIA GPU: memory, streams, events and graphs, and the module entry. Without
// a driver, or for a GPU that this image holds no code for, it loads and says why it cannot serve.

#include "plugins/cuda/status.hpp"
#include "plugins/device/cuda/device.hpp"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

namespace cuda {
namespace {

const Device& device(void* self) {
    return *static_cast<const Device*>(self);
}

cudaStream_t native(const assay_stream* s) {
    return s != nullptr ? static_cast<cudaStream_t>(s->native) : nullptr;
}

/// Makes the device current on this thread: the runtime keeps one a thread, and starts with 0.
cudaError_t enter(void* self) {
    return cudaSetDevice(device(self).ref.ordinal);
}

// ---- opening -----------------------------------------------------------------------------------

/// The number of GPUs; 0 with the reason in `why`.
int num_devices(std::string& why) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();  // not sticky: the next call would report it again
    if (error == cudaErrorInsufficientDriver) {
        int driver = 0;
        if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
            why = "there is no NVIDIA driver (libcuda.so.1 cannot be loaded)";
        else
            why = "the NVIDIA driver is for CUDA " + std::to_string(driver / 1000) + "." +
                  std::to_string(driver % 1000 / 10) + ", this plugin needs one for CUDA " +
                  std::to_string(CUDART_VERSION / 1000) + "." +
                  std::to_string(CUDART_VERSION % 1000 / 10);
        return 0;
    }
    if (error != cudaSuccess) {
        why = std::string{"the NVIDIA driver sees no GPU: "} + cudaGetErrorString(error);
        return 0;
    }
    if (count == 0) why = "the NVIDIA driver sees no GPU";
    return count;
}

assay_status count(std::int32_t* out, assay_error* err) {
    return sdk::guard(err, [&] {
        std::string why;
        *out = num_devices(why);
        if (*out == 0) sdk::fail(err, ASSAY_UNSUPPORTED, "%s", why.c_str());
    });
}

assay_device_ref describe(int ordinal) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal), "device " + std::to_string(ordinal));
    assay_device_ref r{};
    r.size = sizeof r;
    r.kind = "cuda";
    r.ordinal = ordinal;
    r.arch = 10 * properties.major + properties.minor;
    r.num_units = properties.multiProcessorCount;
    r.l2_bytes = static_cast<std::uint64_t>(properties.l2CacheSize);
    r.shared_optin_bytes = properties.sharedMemPerBlockOptin;
    r.total_bytes = properties.totalGlobalMem;
    std::snprintf(r.name, sizeof r.name, "%.90s", properties.name);
    return r;
}

assay_status open(const assay_host* host, const assay_device_config* config, void** self,
                  assay_device_ref* ref, assay_error* err) {
    return sdk::guard(err, [&] {
        sdk::check_options(*config, {});
        std::string why;
        const int count = num_devices(why);
        if (count == 0) throw sdk::Error{ASSAY_UNSUPPORTED, why};
        if (config->ordinal < 0 || config->ordinal >= count)
            throw sdk::Error{ASSAY_UNSUPPORTED, "there is no GPU " + std::to_string(config->ordinal) +
                                                    ", the driver sees " + std::to_string(count)};
        auto opened = std::make_unique<Device>();
        opened->ref = describe(config->ordinal);
        require_target(opened->ref);
        check(cudaSetDevice(config->ordinal), "device " + std::to_string(config->ordinal));
        check(cudaFree(nullptr), "the context of device " + std::to_string(config->ordinal));
        *ref = opened->ref;
        sdk::log(host, ASSAY_INFO,
                 "device=cuda ordinal=" + std::to_string(config->ordinal) + " name=\"" +
                     opened->ref.name + "\" arch=" + std::to_string(opened->ref.arch) +
                     " units=" + std::to_string(opened->ref.num_units) +
                     " memory_bytes=" + std::to_string(opened->ref.total_bytes));
        *self = opened.release();
    });
}

void close(void* self) {
    delete static_cast<Device*>(self);
}

// ---- memory ------------------------------------------------------------------------------------

constexpr std::uint64_t kAlignment = 256;

assay_status alloc(void* self, std::int32_t space, std::uint64_t bytes, void** out,
                   assay_error* err) {
    *out = nullptr;
    if (bytes == 0) bytes = kAlignment;
    if (bytes > UINT64_MAX - kAlignment)
        return sdk::fail(err, ASSAY_NO_MEMORY, "%llu bytes", static_cast<unsigned long long>(bytes));
    const std::uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    cudaError_t error = enter(self);
    const char* what = "";
    if (error == cudaSuccess && space == ASSAY_SPACE_DEVICE) {
        what = "device memory";
        error = cudaMalloc(out, rounded);
    } else if (error == cudaSuccess && space == ASSAY_SPACE_PINNED) {
        what = "pinned host memory";
        error = cudaHostAlloc(out, rounded, cudaHostAllocPortable);
    } else if (error == cudaSuccess && space == ASSAY_SPACE_HOST) {
        what = "host memory";
        // Not on credit: what is larger than the machine is refused when asked for, not when written.
        *out = rounded > (std::uint64_t{1} << 46) ? nullptr : std::aligned_alloc(kAlignment, rounded);
        if (*out == nullptr) error = cudaErrorMemoryAllocation;
    } else if (error == cudaSuccess) {
        return sdk::fail(err, ASSAY_INVALID, "memory space %d is not one of this ABI", space);
    }
    if (error == cudaSuccess) return ASSAY_OK;
    (void)cudaGetLastError();
    *out = nullptr;
    std::size_t free_bytes = 0, total_bytes = 0;
    if (space == ASSAY_SPACE_DEVICE && cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess)
        return sdk::fail(err, code_of(error), "%llu bytes of device memory, %llu of %llu are free: %s",
                         static_cast<unsigned long long>(bytes),
                         static_cast<unsigned long long>(free_bytes),
                         static_cast<unsigned long long>(total_bytes), cudaGetErrorString(error));
    return sdk::fail(err, code_of(error), "%llu bytes of %s: %s",
                     static_cast<unsigned long long>(bytes), what, cudaGetErrorString(error));
}

void free_memory(void* self, std::int32_t space, void* ptr) {
    if (ptr == nullptr || enter(self) != cudaSuccess) return;
    if (space == ASSAY_SPACE_DEVICE)
        (void)cudaFree(ptr);
    else if (space == ASSAY_SPACE_PINNED)
        (void)cudaFreeHost(ptr);
    else
        std::free(ptr);
}

assay_status memory(void* self, std::uint64_t* free_bytes, std::uint64_t* total_bytes) {
    std::size_t free_now = 0, total = 0;
    cudaError_t error = enter(self);
    if (error == cudaSuccess) error = cudaMemGetInfo(&free_now, &total);
    *free_bytes = free_now;
    *total_bytes = total;
    return code_of(error);
}

// ---- streams and events ------------------------------------------------------------------------

assay_status stream_create(void* self, std::int32_t priority, const assay_lanes*, assay_stream* out,
                           assay_error* err) {
    *out = {};
    cudaStream_t stream = nullptr;
    cudaError_t error = enter(self);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -priority);
    if (error != cudaSuccess) return status_of(error, err, "a stream");
    *out = {&device(self).ref, stream, nullptr};
    return ASSAY_OK;
}

void stream_destroy(void* self, assay_stream* s) {
    if (native(s) != nullptr && enter(self) == cudaSuccess) (void)cudaStreamDestroy(native(s));
    *s = {};
}

assay_status stream_sync(void* self, const assay_stream* s, assay_error* err) {
    if (const cudaError_t error = enter(self); error != cudaSuccess)
        return status_of(error, err, "the device");
    return status_of(cudaStreamSynchronize(native(s)), err, "work on the stream");
}

cudaEvent_t event_of(void* event) {
    return static_cast<cudaEvent_t>(event);
}

assay_status event_create(void* self, void** event, assay_error* err) {
    cudaEvent_t made = nullptr;
    cudaError_t error = enter(self);
    if (error == cudaSuccess) error = cudaEventCreate(&made);
    *event = made;
    return status_of(error, err, "an event");
}

void event_destroy(void* self, void* event) {
    if (event != nullptr && enter(self) == cudaSuccess) (void)cudaEventDestroy(event_of(event));
}

assay_status event_record(void* self, void* event, const assay_stream* s) {
    if (event == nullptr) return ASSAY_INVALID;
    if (const cudaError_t error = enter(self); error != cudaSuccess) return code_of(error);
    return code_of(cudaEventRecord(event_of(event), native(s)));
}

assay_status event_wait(void* self, const assay_stream* s, void* event) {
    if (event == nullptr) return ASSAY_INVALID;
    if (const cudaError_t error = enter(self); error != cudaSuccess) return code_of(error);
    return code_of(cudaStreamWaitEvent(native(s), event_of(event), 0));
}

assay_status event_done(void*, void* event, bool* done, assay_error* err) {
    if (event == nullptr) return sdk::fail(err, ASSAY_INVALID, "no event");
    const cudaError_t error = cudaEventQuery(event_of(event));
    *done = error == cudaSuccess;
    return error == cudaErrorNotReady ? ASSAY_OK : status_of(error, err, "work before the event");
}

// Polls: the runtime's own wait has no deadline. A step takes milliseconds, so the first ones are spent
// without giving the processor away.
assay_status event_sync(void* self, void* event, std::int64_t timeout_us, assay_error* err) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kEager{20};
    if (event == nullptr) return sdk::fail(err, ASSAY_INVALID, "no event");
    const auto begin = Clock::now();
    for (;;) {
        bool done = false;
        const assay_status status = event_done(self, event, &done, err);
        if (status != ASSAY_OK || done) return status;
        const auto waited = Clock::now() - begin;
        if (waited > std::chrono::microseconds{timeout_us})
            return sdk::fail(err, ASSAY_TIMEOUT, "the device did not finish within %lld us",
                             static_cast<long long>(timeout_us));
        if (waited > kEager) std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
}

assay_status event_elapsed_us(void* self, void* from, void* to, double* us) {
    if (from == nullptr || to == nullptr) return ASSAY_INVALID;
    if (const cudaError_t error = enter(self); error != cudaSuccess) return code_of(error);
    float ms = 0;
    const cudaError_t error = cudaEventElapsedTime(&ms, event_of(from), event_of(to));
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return code_of(error);
    }
    *us = 1000.0 * double{ms};
    return ASSAY_OK;
}

assay_status copy(void* self, void* dst, const void* src, std::uint64_t bytes,
                  const assay_stream* s) {
    if (bytes == 0) return ASSAY_OK;
    if (dst == nullptr || src == nullptr) return ASSAY_INVALID;
    if (const cudaError_t error = enter(self); error != cudaSuccess) return code_of(error);
    return code_of(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, native(s)));
}

assay_status fill(void* self, void* dst, std::int32_t byte, std::uint64_t bytes,
                  const assay_stream* s) {
    if (bytes == 0) return ASSAY_OK;
    if (dst == nullptr) return ASSAY_INVALID;
    if (const cudaError_t error = enter(self); error != cudaSuccess) return code_of(error);
    return code_of(cudaMemsetAsync(dst, byte, bytes, native(s)));
}

// ---- graphs ------------------------------------------------------------------------------------

assay_status capture_begin(void* self, const assay_stream* s, assay_error* err) {
    if (const cudaError_t error = enter(self); error != cudaSuccess)
        return status_of(error, err, "the device");
    return status_of(cudaStreamBeginCapture(native(s), cudaStreamCaptureModeThreadLocal), err,
                     "beginning a capture");
}

assay_status capture_end(void* self, const assay_stream* s, void** graph, assay_error* err) {
    *graph = nullptr;
    if (const cudaError_t error = enter(self); error != cudaSuccess)
        return status_of(error, err, "the device");
    cudaGraph_t captured = nullptr;
    if (const cudaError_t error = cudaStreamEndCapture(native(s), &captured); error != cudaSuccess) {
        (void)cudaGetLastError();
        return status_of(error, err, "ending a capture");
    }
    cudaGraphExec_t executable = nullptr;
    cudaError_t error = cudaGraphInstantiate(&executable, captured, 0);
    (void)cudaGraphDestroy(captured);
    if (error == cudaSuccess) error = cudaGraphUpload(executable, native(s));
    if (error != cudaSuccess) return status_of(error, err, "instantiating a graph");
    *graph = executable;
    return ASSAY_OK;
}

assay_status graph_launch(void* self, void* graph, const assay_stream* s) {
    if (graph == nullptr) return ASSAY_INVALID;
    if (const cudaError_t error = enter(self); error != cudaSuccess) return code_of(error);
    return code_of(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), native(s)));
}

void graph_destroy(void* self, void* graph) {
    if (graph != nullptr && enter(self) == cudaSuccess)
        (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

// ---- the tables --------------------------------------------------------------------------------

constexpr char kNoCollectives[] =
    "this build of the cuda device has no collectives: it serves one rank";

const assay_device kDevice = {
    .size = sizeof(assay_device),
    .kind = "cuda",
    .count = count,
    .open = open,
    .close = close,
    .alloc = alloc,
    .free = free_memory,
    .memory = memory,
    .host_visible = false,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .event_sync = event_sync,
    .event_elapsed_us = event_elapsed_us,
    .copy = copy,
    .fill = fill,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .ops = &device_ops,
    .collectives = nullptr,
    .collectives_absent = kNoCollectives,
};

assay_status module_open(const assay_host*, assay_error*) {
    return ASSAY_OK;
}

const void* module_query(const char* interface_id) {
    return std::strcmp(interface_id, ASSAY_KIND_DEVICE) == 0 ? &kDevice : nullptr;
}

void module_close() {}

}  // namespace
}  // namespace cuda

extern "C" const assay_module assay_module_entry = {
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = "cuda",
    .version = "0.1.0",
    .vendor = "assay",
    .build = "CUDA " ASSAY_CUDA_VERSION "; compute capability " ASSAY_CUDA_TARGETS,
    .kinds = ASSAY_KIND_DEVICE,
    .open = cuda::module_open,
    .query = cuda::module_query,
    .close = cuda::module_close,
};
