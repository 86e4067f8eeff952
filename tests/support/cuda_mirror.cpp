#include "tests/support/cuda_mirror.hpp"

#include "tests/support/build_dir.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <dlfcn.h>
#include <stdexcept>

namespace support {
namespace {

std::string no_device;

void require(assay_status status, const char* what) {
    if (status != ASSAY_OK) throw std::runtime_error{std::string{what} + ": status " + std::to_string(status)};
}

}  // namespace

const assay_module& CudaDevice::module() {
    static const assay_module* const module = [] {
        void* image = dlopen((build_dir() + "/plugins/device/cuda.so").c_str(), RTLD_NOW | RTLD_LOCAL);
        if (image == nullptr) throw std::runtime_error{dlerror()};
        const auto* m = static_cast<const assay_module*>(dlsym(image, "assay_module_entry"));
        require(m->open(nullptr, nullptr), "open");
        return m;
    }();
    return *module;
}

const assay_device& CudaDevice::table() {
    return *static_cast<const assay_device*>(module().query(ASSAY_KIND_DEVICE));
}

CudaDevice* CudaDevice::get() {
    static CudaDevice* const device = []() -> CudaDevice* {
        std::int32_t count = 0;
        assay_error err = sdk::make_error();
        require(table().count(&count, &err), "count");
        if (count == 0) {
            no_device = err.text;
            return nullptr;
        }
        auto* opened = new CudaDevice;  // for the life of the process, as in the daemon
        const assay_device_config config{sizeof config, 0, nullptr, 0};
        if (table().open(nullptr, &config, &opened->self_, &opened->ref_, &err) != ASSAY_OK) {
            no_device = err.text;
            return nullptr;
        }
        require(table().stream_create(opened->self_, 0, nullptr, &opened->stream_, nullptr), "stream");
        return opened;
    }();
    return device;
}

const std::string& CudaDevice::why() {
    (void)get();
    return no_device;
}

CudaMirror::~CudaMirror() {
    for (const Piece& p : pieces_) CudaDevice::table().free(CudaDevice::get()->self(), ASSAY_SPACE_DEVICE, p.base);
}

CudaMirror::Piece& CudaMirror::add(std::uint64_t bytes, const void* host, Access access) {
    const assay_device& d = CudaDevice::table();
    CudaDevice& device = *CudaDevice::get();
    void* base = nullptr;
    const std::uint64_t whole = kMargin + bytes + kMargin;
    require(d.alloc(device.self(), ASSAY_SPACE_DEVICE, whole, &base, nullptr), "device memory");
    require(d.fill(device.self(), base, kSentinel, whole, device.stream()), "sentinels");
    return pieces_.emplace_back(Piece{static_cast<char*>(base), host, bytes, access});
}

void* CudaMirror::of(const void* host, std::uint64_t bytes, Access access) {
    if (host == nullptr) return nullptr;
    const Piece& p = add(bytes, host, access);
    CudaDevice& device = *CudaDevice::get();
    require(CudaDevice::table().copy(device.self(), p.base + kMargin, host, bytes, device.stream()), "upload");
    require(CudaDevice::table().stream_sync(device.self(), device.stream(), nullptr), "upload");
    return p.base + kMargin;
}

assay_tensor CudaMirror::view(const assay_tensor& t, Access access) {
    assay_tensor over = t;
    if (t.data == nullptr || t.rank < 1 || t.rank > ASSAY_MAX_RANK) return over;
    std::int64_t last = 0;
    for (int d = 0; d < t.rank; ++d) {
        if (t.shape[d] <= 0) return over;  // nothing is read
        last += (t.shape[d] - 1) * t.stride[d];
    }
    over.data = of(t.data, static_cast<std::uint64_t>((last + 1) * sdk::dtype_bytes(t.dtype)), access);
    return over;
}

void* CudaMirror::scratch(std::uint64_t bytes) {
    const Piece& p = add(bytes, nullptr, Access::write);
    CudaDevice& device = *CudaDevice::get();
    require(CudaDevice::table().fill(device.self(), p.base + kMargin, 0xff, bytes, device.stream()), "poison");
    return p.base + kMargin;
}

void CudaMirror::finish() {
    const assay_device& d = CudaDevice::table();
    CudaDevice& device = *CudaDevice::get();
    assay_error err = sdk::make_error();
    if (d.stream_sync(device.self(), device.stream(), &err) != ASSAY_OK) throw std::runtime_error{err.text};
    for (const Piece& p : pieces_) {
        std::vector<char> bytes(static_cast<std::size_t>(p.bytes + 2 * kMargin));
        require(d.copy(device.self(), bytes.data(), p.base, bytes.size(), device.stream()), "download");
        require(d.stream_sync(device.self(), device.stream(), nullptr), "download");
        const auto is_sentinel = [](char c) { return c == static_cast<char>(kSentinel); };
        for (std::uint64_t i = 0; i < kMargin; ++i) {
            if (is_sentinel(bytes[i]) && is_sentinel(bytes[bytes.size() - 1 - i])) continue;
            ADD_FAILURE() << "written outside of an argument of " << p.bytes << " bytes";
            break;
        }
        if (p.host == nullptr) continue;
        if (p.access == Access::write)
            std::memcpy(const_cast<void*>(p.host), bytes.data() + kMargin, p.bytes);
        else
            EXPECT_EQ(std::memcmp(p.host, bytes.data() + kMargin, p.bytes), 0)
                << "an argument of " << p.bytes << " bytes that is only read was written";
    }
}

}  // namespace support
