// The device kind on the host's own processor: memory, streams and events, and the module entry.
// Work is done when the call that asks for it returns, so streams and events have nothing to wait
// for.

#include "cxx/plugin.hpp"

#include "device.hpp"
#include "machine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace cpu {
namespace {

constexpr std::uint64_t kAlignment = 256;
constexpr std::uint64_t kHugePage = 2u << 20;
constexpr std::uint64_t kCopyPiece = 1u << 20;  // bytes; below it one core is as fast as several

const Device& device(void* self) {
    return *static_cast<const Device*>(self);
}

// ---- opening ---------------------------------------------------------------------------------

#if defined(__x86_64__)
/// Conversions between f32 and f16: bit 29 of ecx of cpuid leaf 1.
bool has_f16c() {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1u) != 0;
}
#endif

bool runs_here(const RowKernels& kernels) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (&kernels == &avx512_kernels)
        return has_f16c() && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    if (&kernels == &avx2_kernels) return has_f16c() && __builtin_cpu_supports("avx2");
#endif
    return &kernels == &baseline_kernels || &kernels == &reference_kernels;
}

constexpr const RowKernels* kTiers[] = {  // best first
#if defined(__x86_64__)
    &avx512_kernels, &avx2_kernels,
#endif
    &baseline_kernels, &reference_kernels};

const RowKernels& choose_tier(std::string_view wanted) {
    std::string known = "auto";
    for (const RowKernels* kernels : kTiers) {
        known += std::string{", "} + kernels->name;
        if (wanted == "auto" && runs_here(*kernels)) return *kernels;
        if (wanted != kernels->name) continue;
        if (!runs_here(*kernels))
            throw sdk::Error{ASSAY_UNSUPPORTED, "option tier: this processor has no " +
                                                    std::string{wanted} + "; use auto"};
        return *kernels;
    }
    throw sdk::Error{ASSAY_UNSUPPORTED,
                     "option tier: \"" + std::string{wanted} + "\"; known: " + known};
}

assay_status count(std::int32_t* out, assay_error*) {
    *out = 1;
    return ASSAY_OK;
}

assay_status open(const assay_host* host, const assay_device_config* config, void** self,
                  assay_device_ref* ref, assay_error* err) {
    return sdk::guard(err, [&] {
        if (config->ordinal != 0)
            throw sdk::Error{ASSAY_UNSUPPORTED,
                             "the cpu kind has one device, ordinal 0; asked for " +
                                 std::to_string(config->ordinal)};
        sdk::check_options(*config, {"tier"});
        auto opened = std::make_unique<Device>();
        opened->kernels = &choose_tier(sdk::option(*config, "tier", "auto"));

        const Machine machine = describe_machine();
        assay_device_ref& r = opened->ref;
        r.size = sizeof r;
        r.kind = "cpu";
        r.num_units = machine.num_cores;
        r.l2_bytes = machine.l2_bytes;
        r.total_bytes = machine.total_bytes;
        std::snprintf(r.name, sizeof r.name, "%.70s (%s)", machine.model.c_str(),
                      opened->kernels->name);
        *ref = r;
        sdk::log(host, ASSAY_INFO,
                 "device=cpu name=\"" + std::string{r.name} +
                     "\" cores=" + std::to_string(r.num_units) +
                     " memory_bytes=" + std::to_string(r.total_bytes));
        *self = opened.release();
    });
}

void close(void* self) {
    delete static_cast<Device*>(self);
}

// ---- memory ----------------------------------------------------------------------------------

assay_status alloc(void* self, std::int32_t space, std::uint64_t bytes, void** out,
                   assay_error* err) {
    *out = nullptr;
    if (space < ASSAY_SPACE_HOST || space > ASSAY_SPACE_DEVICE)
        return sdk::fail(err, ASSAY_INVALID, "memory space %d is not one of this ABI", space);
    // More than there is would be granted on credit, and the process killed when it is written.
    const std::uint64_t total = device(self).ref.total_bytes;
    if (bytes > total)
        return sdk::fail(err, ASSAY_NO_MEMORY, "%llu bytes of host memory, there are %llu in all",
                         static_cast<unsigned long long>(bytes),
                         static_cast<unsigned long long>(total));
    // Weights and pages are read in long runs; with small pages the address translation shows.
    const std::uint64_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
    const std::uint64_t rounded =
        std::max(bytes + alignment - 1, alignment) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr)
        return sdk::fail(err, ASSAY_NO_MEMORY, "cannot allocate %llu bytes of host memory",
                         static_cast<unsigned long long>(bytes));
    if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);  // a wish: may be refused
    *out = memory;
    return ASSAY_OK;
}

void free_memory(void*, std::int32_t, void* ptr) {
    std::free(ptr);
}

assay_status memory(void*, std::uint64_t* free_bytes, std::uint64_t* total_bytes) {
    return sdk::guard(nullptr, [&] { memory_now(*free_bytes, *total_bytes); });
}

// ---- streams and events ----------------------------------------------------------------------

void run_alone(const assay_lanes*, std::uint32_t n,
               void (*fn)(void* arg, std::uint32_t i, std::uint32_t lane), void* arg) {
    for (std::uint32_t i = 0; i < n; ++i) fn(arg, i, 0);
}
constexpr assay_lanes kOneLane{sizeof(assay_lanes), 1, nullptr, run_alone};

assay_status stream_create(void* self, std::int32_t, const assay_lanes* lanes, assay_stream* out,
                           assay_error*) {
    *out = {&device(self).ref, nullptr, lanes != nullptr ? lanes : &kOneLane};
    return ASSAY_OK;
}

void stream_destroy(void*, assay_stream* s) {
    *s = {};
}

assay_status stream_sync(void*, const assay_stream*, assay_error*) {
    return ASSAY_OK;
}

/// When it was last recorded, in nanoseconds of the steady clock; 0 = never.
struct Event {
    std::atomic<std::int64_t> recorded_ns{0};
};

assay_status event_create(void*, void** event, assay_error* err) {
    return sdk::guard(err, [&] { *event = new Event; });
}

void event_destroy(void*, void* event) {
    delete static_cast<Event*>(event);
}

assay_status event_record(void*, void* event, const assay_stream*) {
    if (event == nullptr) return ASSAY_INVALID;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    static_cast<Event*>(event)->recorded_ns.store(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
    return ASSAY_OK;
}

assay_status event_wait(void*, const assay_stream*, void* event) {
    return event != nullptr ? ASSAY_OK : ASSAY_INVALID;
}

// Recorded or not, nothing that came before it is still running.
assay_status event_done(void*, void* event, bool* done, assay_error* err) {
    if (event == nullptr) return sdk::fail(err, ASSAY_INVALID, "no event");
    *done = true;
    return ASSAY_OK;
}

assay_status event_sync(void*, void* event, std::int64_t, assay_error* err) {
    return event != nullptr ? ASSAY_OK : sdk::fail(err, ASSAY_INVALID, "no event");
}

assay_status event_elapsed_us(void*, void* from, void* to, double* us) {
    if (from == nullptr || to == nullptr) return ASSAY_INVALID;
    const std::int64_t first = static_cast<Event*>(from)->recorded_ns.load();
    const std::int64_t last = static_cast<Event*>(to)->recorded_ns.load();
    if (first == 0 || last == 0) return ASSAY_INVALID;
    *us = static_cast<double>(last - first) / 1000.0;
    return ASSAY_OK;
}

/// Calls piece(offset, bytes) over [0, bytes) on the lanes of the stream.
template <class Piece>
void for_bytes(const assay_stream* s, std::uint64_t bytes, const Piece& piece) {
    const auto num_pieces = static_cast<std::int64_t>((bytes + kCopyPiece - 1) / kCopyPiece);
    sdk::parallel_for(s != nullptr ? s->lanes : nullptr, num_pieces,
                      [&](std::uint32_t i, std::uint32_t) {
                          const std::uint64_t offset = i * kCopyPiece;
                          piece(offset, std::min(kCopyPiece, bytes - offset));
                      });
}

assay_status copy(void*, void* dst, const void* src, std::uint64_t bytes, const assay_stream* s) {
    if (bytes == 0) return ASSAY_OK;
    if (dst == nullptr || src == nullptr) return ASSAY_INVALID;
    auto* to = static_cast<std::byte*>(dst);
    const auto* from = static_cast<const std::byte*>(src);
    for_bytes(s, bytes, [&](std::uint64_t offset, std::uint64_t count) {
        std::memcpy(to + offset, from + offset, count);
    });
    return ASSAY_OK;
}

assay_status fill(void*, void* dst, std::int32_t byte, std::uint64_t bytes, const assay_stream* s) {
    if (bytes == 0) return ASSAY_OK;
    if (dst == nullptr) return ASSAY_INVALID;
    auto* to = static_cast<std::byte*>(dst);
    for_bytes(s, bytes, [&](std::uint64_t offset, std::uint64_t count) {
        std::memset(to + offset, byte, count);
    });
    return ASSAY_OK;
}

// ---- the tables ------------------------------------------------------------------------------

constexpr assay_device kDevice = {
    .size = sizeof(assay_device),
    .kind = "cpu",
    .count = count,
    .open = open,
    .close = close,
    .alloc = alloc,
    .free = free_memory,
    .memory = memory,
    .host_visible = true,
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
    .capture_begin = nullptr,
    .capture_end = nullptr,
    .graph_launch = nullptr,
    .graph_destroy = nullptr,
    .ops = &cpu_ops,
    .collectives = nullptr,
    .collectives_absent = "the cpu device serves one rank: its lanes already use the whole machine",
};

assay_status module_open(const assay_host*, assay_error*) {
    return ASSAY_OK;
}

const void* module_query(const char* interface_id) {
    return std::strcmp(interface_id, ASSAY_KIND_DEVICE) == 0 ? &kDevice : nullptr;
}

void module_close() {}

}  // namespace
}  // namespace cpu

extern "C" const assay_module assay_module_entry = {
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = "cpu",
    .version = "0.1.0",
    .vendor = "assay",
#if defined(__x86_64__)
    .build = "compiler " __VERSION__ "; x86-64: reference, baseline, avx2, avx512",
#else
    .build = "compiler " __VERSION__ "; reference, baseline",
#endif
    .kinds = ASSAY_KIND_DEVICE,
    .open = cpu::module_open,
    .query = cpu::module_query,
    .close = cpu::module_close,
};
