// Image "reference": attention/1 by its definition, in f64 over paged f32 caches. The tables and
// the workspace; the arithmetic is in rows.cpp.

#include "rows.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace attention::reference {
namespace {

constexpr std::uint64_t kF32 = std::uint64_t{1} << ASSAY_F32;
constexpr std::int32_t kAnySize = 1 << 16;

constexpr Image kImage{
    .id = "reference",
    .kv_dtypes = kF32,
    .default_kv_dtype = ASSAY_F32,
    .default_page_tokens = 32,
    .page_step = 1,
    .max_page_tokens = 1 << 16,
    .min_head_dim = 1,
    .max_head_dim = kAnySize,
    .max_latent_dim = kAnySize,
    .max_index_head_dim = kAnySize,
};

struct Instance {
    Cache cache;
    std::vector<Layer> layers;
    std::int64_t max_workers;
    std::int64_t max_kv_len = 0;  // of sizes()
};

Instance& instance(void* self) {
    return *static_cast<Instance*>(self);
}

const Layer& layer_of(const Instance& in, std::uint32_t layer) {
    if (layer >= in.layers.size())
        throw sdk::Error{ASSAY_INVALID, "layer " + std::to_string(layer) + " of " +
                                            std::to_string(in.layers.size())};
    return in.layers[layer];
}

std::int64_t align(std::int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/// Bytes of each array of a Scratch, summed, and the arrays themselves when `base` is given.
std::int64_t carve(const Instance& in, char* base, Scratch* out) {
    std::int64_t query = 1, sum = 1, slots = std::max<std::int64_t>(in.max_kv_len, 1);
    for (const Layer& layer : in.layers) {
        query = std::max({query, layer.key_dim, layer.index_n_heads * layer.index_head_dim});
        sum = std::max(sum, layer.value_dim);
        slots = std::max(slots, layer.index_topk);
    }
    std::int64_t offset = 0;
    const auto take = [&](std::int64_t bytes) {
        char* at = base != nullptr ? base + offset : nullptr;
        offset += align(bytes);
        return at;
    };
    Scratch s{};
    s.query = reinterpret_cast<double*>(take(query * 8));
    s.sum = reinterpret_cast<double*>(take(sum * 8));
    s.score = reinterpret_cast<double*>(take(slots * 8));
    s.slots = reinterpret_cast<std::int32_t*>(take(slots * 4));
    s.scratch = reinterpret_cast<std::int32_t*>(take(slots * 4));
    if (out != nullptr) *out = s;
    return offset;
}

/// Workers that the workspace has room for; INVALID when not even one.
std::int64_t workers_of(const Instance& in, const assay_attn_batch& batch, const void* workspace,
                        std::uint64_t workspace_bytes) {
    for (std::int32_t i = 0; i < batch.num_seqs; ++i)
        if (batch.kv_len[i] > in.max_kv_len)
            throw sdk::Error{ASSAY_INVALID, "sequence " + std::to_string(i) + ": kv_len " +
                                                std::to_string(batch.kv_len[i]) +
                                                ", sizes() named " + std::to_string(in.max_kv_len)};
    const std::int64_t each = carve(in, nullptr, nullptr);
    const std::int64_t room = static_cast<std::int64_t>(workspace_bytes) / each;
    if (workspace == nullptr || room < 1)
        throw sdk::Error{ASSAY_INVALID, "workspace of " + std::to_string(workspace_bytes) +
                                            " bytes, a worker needs " + std::to_string(each)};
    return std::min(room, in.max_workers);
}

assay_status check(const assay_attn_config* config, const assay_attn_layer* layer, int32_t phase,
                   assay_error* why) {
    return sdk::guard(why, [&] {
        sdk::check_options(*config, {});
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
        sdk::check_options(*config, {});
        auto in = std::make_unique<Instance>();
        in->cache = resolve_cache(kImage, *config);
        for (std::uint32_t i = 0; i < num_layers; ++i)
            in->layers.push_back(resolve_layer(kImage, *layers[i]));
        in->max_workers = config->device != nullptr ? std::max(config->device->num_units, 1) : 1;
        std::snprintf(tier, 32, "f64");
        *self = in.release();
    });
}

void destroy(void* self) {
    delete static_cast<Instance*>(self);
}

assay_status sizes(void* self, int32_t, int32_t, int32_t max_kv_len, uint64_t* plan_bytes,
                   uint64_t* workspace_bytes, assay_error* err) {
    return sdk::guard(err, [&] {
        Instance& in = instance(self);
        in.max_kv_len = std::max(max_kv_len, 0);
        *plan_bytes = 0;
        *workspace_bytes = static_cast<std::uint64_t>(in.max_workers * carve(in, nullptr, nullptr));
    });
}

assay_status append_tokens(void* self, uint32_t layer, const assay_attn_args* a,
                           const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        append(layer_of(in, layer), in.cache, kPlainRowCopy, *a, *s);
    });
}

assay_status index(void* self, uint32_t layer, const assay_attn_index_args* a,
                   const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        const Layer& l = layer_of(in, layer);
        check_index(l, in.cache, *a);
        const std::int64_t first = first_row(*a->batch), rows = end_row(*a->batch) - first;
        if (rows == 0) return;
        const std::int64_t workers = workers_of(in, *a->batch, a->workspace, a->workspace_bytes);
        const std::int64_t each = carve(in, nullptr, nullptr);
        for_each_item(s->lanes, rows, workers, [&](std::int64_t item, std::int64_t worker) {
            Scratch scratch;
            carve(in, static_cast<char*>(a->workspace) + worker * each, &scratch);
            index_row(l, in.cache, *a, first + item, scratch);
        });
    });
}

assay_status run(void* self, uint32_t layer, const assay_attn_args* a, const assay_stream* s,
                 assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        const Layer& l = layer_of(in, layer);
        check_run(l, in.cache, *a);
        const std::int64_t first = first_row(*a->batch), rows = end_row(*a->batch) - first;
        if (rows == 0) return;
        const std::int64_t workers = workers_of(in, *a->batch, a->workspace, a->workspace_bytes);
        const std::int64_t each = carve(in, nullptr, nullptr);
        std::atomic<std::int64_t> bad_row{-1};
        for_each_item(s->lanes, rows * l.num_q_heads, workers,
                      [&](std::int64_t item, std::int64_t worker) {
                          Scratch scratch;
                          carve(in, static_cast<char*>(a->workspace) + worker * each, &scratch);
                          const std::int64_t row = first + item / l.num_q_heads;
                          if (!attend_row(l, in.cache, *a, row, item % l.num_q_heads, scratch))
                              bad_row.store(row, std::memory_order_relaxed);
                      });
        if (bad_row.load() >= 0) fail_selection(bad_row.load());
    });
}

assay_status read(void* self, uint32_t layer, uint32_t plane, void* const planes[ASSAY_MAX_PLANES],
                  const int32_t* slots, int64_t num_slots, const assay_tensor* out,
                  const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        kv_read(layer_of(in, layer), in.cache, kPlainRowCopy, plane, planes, slots, num_slots, *out,
                *s);
    });
}

constexpr std::uint32_t kFlags = ASSAY_ATTN_CAPTURABLE | ASSAY_ATTN_LSE | ASSAY_ATTN_SINK |
                                 ASSAY_ATTN_ORDERED | ASSAY_ATTN_SOFTCAP;

constexpr assay_attn_cap cap(assay_attn_class attn_class, std::uint32_t flags) {
    assay_attn_cap c{};
    c.size = sizeof c;
    c.attn_class = attn_class;
    c.max_head_dim = kAnySize;
    c.io_dtypes = kF32;
    c.kv_dtypes = kF32;
    c.phases = ASSAY_PREFILL | ASSAY_DECODE | ASSAY_MIXED;
    c.flags = flags;
    return c;
}

constexpr assay_attn_cap kGqa = cap(ASSAY_ATTN_GQA, kFlags | ASSAY_ATTN_WINDOW);
constexpr assay_attn_cap kMla = cap(ASSAY_ATTN_MLA, kFlags | ASSAY_ATTN_WINDOW);
constexpr assay_attn_cap kDsa = cap(ASSAY_ATTN_MLA_DSA, kFlags);
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
    .prepare = nullptr,  // nothing to plan
    .append = append_tokens,
    .index = index,
    .run = run,
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
}  // namespace attention::reference

extern "C" const assay_module assay_module_entry{
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = "reference",
    .version = "0.1.0",
    .vendor = "assay",
    .build = "g++ " __VERSION__ "; f64",
    .kinds = ASSAY_KIND_ATTENTION,
    .open = attention::reference::open,
    .query = attention::reference::query,
    .close = attention::reference::close,
};
