// The tables, argument checks and the choice of the instruction set. The only file that knows the
// ABI. Image "cpu-flash"; other images of the same code differ by IMAGE_HEADER, which says what
// they offer.

#include "run.hpp"

#include IMAGE_HEADER

#include <algorithm>
#include <memory>
#include <string>

namespace attention::flash {
namespace {

bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

/// The kernels that the option "tier" names. Throws UNSUPPORTED when the processor lacks them.
const Kernels* choose_kernels(const assay_attn_config& config) {
    sdk::check_options(config, {"tier"});
    const std::string_view tier = sdk::option(config, "tier", "auto");
    if (tier == "auto")
        return has_avx512() ? &kAvx512Kernels : has_avx2() ? &kAvx2Kernels : &kScalarKernels;
    if (tier == "scalar") return &kScalarKernels;
    const bool is_avx2 = tier == "avx2", is_avx512 = tier == "avx512";
    if (!is_avx2 && !is_avx512)
        throw sdk::Error{ASSAY_UNSUPPORTED, "option tier is \"" + std::string{tier} +
                                                "\"; known: auto, scalar, avx2, avx512"};
    if (is_avx2 ? !has_avx2() : !has_avx512())
        throw sdk::Error{ASSAY_UNSUPPORTED,
                         "tier " + std::string{tier} + ": this processor lacks it"};
    return is_avx2 ? &kAvx2Kernels : &kAvx512Kernels;
}

Instance& instance(void* self) {
    return *static_cast<Instance*>(self);
}

const Layer& layer_of(const Instance& in, std::uint32_t layer) {
    if (layer >= in.layers.size())
        throw sdk::Error{ASSAY_INVALID, "layer " + std::to_string(layer) + " of " +
                                            std::to_string(in.layers.size())};
    return in.layers[layer];
}

assay_status check(const assay_attn_config* config, const assay_attn_layer* layer, int32_t phase,
                   assay_error* why) {
    return sdk::guard(why, [&] {
        (void)choose_kernels(*config);
        check_phase(phase);
        (void)resolve_cache(kImage, *config);
        (void)resolve_layer(kImage, *layer);
    });
}

assay_status kv_layout(const assay_attn_config* config, const assay_attn_layer* layer,
                       assay_kv_layout* out, assay_error* err) {
    return sdk::guard(err, [&] {
        fill_layout(resolve_layer(kImage, *layer), resolve_cache(kImage, *config), *out);
    });
}

assay_status create(const assay_host*, const assay_attn_config* config,
                    const assay_attn_layer* const* layers, uint32_t num_layers, void** self,
                    char tier[32], assay_error* err) {
    return sdk::guard(err, [&] {
        auto in = std::make_unique<Instance>();
        in->kernels = choose_kernels(*config);
        in->cache = resolve_cache(kImage, *config);
        for (std::uint32_t i = 0; i < num_layers; ++i)
            in->layers.push_back(resolve_layer(kImage, *layers[i]));
        in->max_workers = config->device != nullptr ? std::max(config->device->num_units, 1) : 1;
        prepare_sizes(*in);
        std::snprintf(tier, 32, "%s", in->kernels->tier);
        *self = in.release();
    });
}

void destroy(void* self) {
    delete static_cast<Instance*>(self);
}

assay_status sizes(void* self, int32_t max_seqs, int32_t max_tokens, int32_t max_kv_len,
                   uint64_t* plan_bytes, uint64_t* workspace, assay_error* err) {
    return sdk::guard(err, [&] {
        if (max_seqs < 0 || max_tokens < 0 || max_kv_len < 0)
            throw sdk::Error{ASSAY_INVALID, "a size is negative"};
        Instance& in = instance(self);
        in.limits = {max_seqs, max_tokens, max_kv_len};
        *plan_bytes = 0;
        *workspace = static_cast<std::uint64_t>(workspace_bytes(in));
    });
}

RowCopy row_copy(const Instance& in) {
    return {in.kernels->narrow, in.kernels->widen};
}

assay_status append_tokens(void* self, uint32_t layer, const assay_attn_args* a,
                           const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        append(layer_of(in, layer), in.cache, row_copy(in), *a, *s);
    });
}

assay_status index_tokens(void* self, uint32_t layer, const assay_attn_index_args* a,
                          const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] { index(instance(self), layer_of(instance(self), layer), *a, *s); });
}

assay_status run_tokens(void* self, uint32_t layer, const assay_attn_args* a, const assay_stream* s,
                        assay_error* err) {
    return sdk::guard(err, [&] { run(instance(self), layer_of(instance(self), layer), *a, *s); });
}

assay_status read(void* self, uint32_t layer, uint32_t plane, void* const planes[ASSAY_MAX_PLANES],
                  const int32_t* slots, int64_t num_slots, const assay_tensor* out,
                  const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        kv_read(layer_of(in, layer), in.cache, row_copy(in), plane, planes, slots, num_slots, *out,
                *s);
    });
}

constexpr std::uint32_t kFlags = ASSAY_ATTN_CAPTURABLE | ASSAY_ATTN_LSE | ASSAY_ATTN_SINK |
                                 ASSAY_ATTN_ORDERED | ASSAY_ATTN_SOFTCAP;

constexpr assay_attn_cap cap(assay_attn_class attn_class, std::int32_t max_head_dim,
                             std::uint32_t flags) {
    assay_attn_cap c{};
    c.size = sizeof c;
    c.attn_class = attn_class;
    c.max_head_dim = max_head_dim;
    c.io_dtypes = std::uint64_t{1} << ASSAY_F32;
    c.kv_dtypes = kImage.kv_dtypes;
    c.phases = ASSAY_PREFILL | ASSAY_DECODE | ASSAY_MIXED;
    c.flags = flags;
    return c;
}

constexpr assay_attn_cap kGqa =
    cap(ASSAY_ATTN_GQA, kImage.max_head_dim, kFlags | ASSAY_ATTN_WINDOW);
constexpr assay_attn_cap kMla =
    cap(ASSAY_ATTN_MLA, kImage.max_latent_dim, kFlags | ASSAY_ATTN_WINDOW);
constexpr assay_attn_cap kDsa = cap(ASSAY_ATTN_MLA_DSA, kImage.max_latent_dim, kFlags);
constexpr const assay_attn_cap* kCaps[] = {&kGqa, &kMla, &kDsa};

constexpr assay_attention kAttention{
    .size = sizeof(assay_attention),
    .num_caps = 3,
    .caps = kCaps,
    .check = check,
    .kv_layout = kv_layout,
    .create = create,
    .destroy = destroy,
    .sizes = sizes,
    .prepare = nullptr,  // the schedule is a few comparisons a block: run() makes it afresh
    .append = append_tokens,
    .index = index_tokens,
    .run = run_tokens,
    .kv_read = read,
    .convert_pages = nullptr,
};

assay_status open(const assay_host*, assay_error*) {
    return ASSAY_OK;
}
const void* query(const char* id) {
    return std::string_view{id} == ASSAY_KIND_ATTENTION ? &kAttention : nullptr;
}
void close() {}

}  // namespace
}  // namespace attention::flash

extern "C" const assay_module assay_module_entry{
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = IMAGE_ID,
    .version = "0.1.0",
    .vendor = "assay",
    .build = "g++ " __VERSION__ "; scalar, avx2+fma+f16c, avx512 f+bw+dq+vl",
    .kinds = ASSAY_KIND_ATTENTION,
    .open = attention::flash::open,
    .query = attention::flash::query,
    .close = attention::flash::close,
};
