#include "plugins/cuda/status.hpp"
#include "plugins/quant/cuda-ggml/gemm.hpp"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <mutex>

namespace cuda_ggml {

struct Cublas::Library {
    void* image = nullptr;
    cublasHandle_t handle = nullptr;
    std::mutex mutex;
    decltype(&cublasCreate_v2) create = nullptr;
    decltype(&cublasDestroy_v2) destroy = nullptr;
    decltype(&cublasSetStream_v2) set_stream = nullptr;
    decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
    decltype(&cublasSetPointerMode_v2) set_pointer_mode = nullptr;
    // Spelled out: the header overloads this name.
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const void* alpha,
                           const void* a, cudaDataType, int lda, long long a_stride, const void* b, cudaDataType, int ldb,
                           long long b_stride, const void* beta, void* c, cudaDataType, int ldc, long long c_stride,
                           int batch, cublasComputeType_t, cublasGemmAlgo_t) = nullptr;

    template <class Function>
    void find(Function& function, const char* name) {
        function = reinterpret_cast<Function>(dlsym(image, name));
        if (function == nullptr)
            throw sdk::Error{ASSAY_UNSUPPORTED, std::string{"cuBLAS has no "} + name};
    }
};

Cublas::Cublas(const std::string& library) : library_{std::make_unique<Library>()} {
    const std::string name =
        library.empty() ? "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR) : library;
    Library& l = *library_;
    // Never closed: its code may be in captured graphs, and it keeps state that outlives a handle.
    l.image = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (l.image == nullptr)
        throw sdk::Error{ASSAY_UNSUPPORTED, "option gemm = cublas: " + std::string{dlerror()}};
    l.find(l.create, "cublasCreate_v2");
    l.find(l.destroy, "cublasDestroy_v2");
    l.find(l.set_stream, "cublasSetStream_v2");
    l.find(l.set_workspace, "cublasSetWorkspace_v2");
    l.find(l.set_pointer_mode, "cublasSetPointerMode_v2");
    l.find(l.gemm, "cublasGemmStridedBatchedEx");
    if (const cublasStatus_t status = l.create(&l.handle); status != CUBLAS_STATUS_SUCCESS)
        throw sdk::Error{ASSAY_INTERNAL, "cuBLAS: no handle, status " + std::to_string(status)};
    // alpha and beta are made on the device.
    if (l.set_pointer_mode(l.handle, CUBLAS_POINTER_MODE_DEVICE) != CUBLAS_STATUS_SUCCESS)
        throw sdk::Error{ASSAY_INTERNAL, "cuBLAS: no device pointer mode"};
}

Cublas::~Cublas() {
    if (library_->handle != nullptr) library_->destroy(library_->handle);
}

// cuBLAS is column-major: row-major [n, k] is its [k, n], transposed in the call.
assay_status Cublas::run(const Gemm& g, void* workspace, const assay_stream* s, assay_error* err) {
    Library& l = *library_;
    const cudaDataType type = g.type == Half::f16 ? CUDA_R_16F : CUDA_R_16BF;
    const std::lock_guard lock{l.mutex};
    if (const cudaError_t error = cudaSetDevice(s->device->ordinal); error != cudaSuccess)
        return cuda::status_of(error, err, "the device");
    cublasStatus_t status = l.set_stream(l.handle, static_cast<cudaStream_t>(s->native));
    if (status == CUBLAS_STATUS_SUCCESS) status = l.set_workspace(l.handle, workspace, kWorkspaceBytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = l.gemm(l.handle, CUBLAS_OP_T, CUBLAS_OP_N, g.n, g.m, g.k, g.alpha, g.w, type,
                        static_cast<int>(g.w_stride), g.w_batch, g.x, type, static_cast<int>(g.x_stride),
                        g.x_batch, g.beta, g.y, CUDA_R_32F, static_cast<int>(g.y_stride), g.y_batch, g.batch,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS) return ASSAY_OK;
    return sdk::fail(err, ASSAY_INTERNAL, "cuBLAS: a product of [%d, %d] and [%d, %d]: status %d", g.m, g.k, g.n,
                     g.k, static_cast<int>(status));
}

}  // namespace cuda_ggml
