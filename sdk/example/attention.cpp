// The smallest attention plugin: grouped-query attention over pages of f32, one (token, head) at a
// time, straight from the definition: softmax(scale * q . k) v over the cached tokens up to the
// query.

#include "cxx/plugin.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace {

struct Shape {
    std::int64_t q_heads, kv_heads, head_dim, v_dim;
    double scale;
};

struct Instance {
    std::int64_t page_tokens = 0;
    std::vector<Shape> layers;
};

std::uint32_t page_tokens(const assay_attn_config& config) {
    return config.page_tokens != 0 ? config.page_tokens : 16;
}

/// Throws with the first condition that fails: the words a refusal to start prints.
void must_serve(const assay_attn_config& config, const assay_attn_layer& l) {
    const auto need = [](bool holds, const char* reason) {
        if (!holds) throw sdk::Error{ASSAY_UNSUPPORTED, reason};
    };
    sdk::check_options(config, {});
    need(std::strcmp(config.device->kind, "cpu") == 0, "device: only cpu");
    need(config.io_dtype == ASSAY_F32, "io_dtype: only f32");
    need(config.kv_dtype == ASSAY_F32 || config.kv_dtype == ASSAY_DTYPE_NONE, "kv_dtype: only f32");
    need(l.attn_class == ASSAY_ATTN_GQA, "class: only GQA");
    need(l.window == 0, "sliding window: none");
    need(l.logit_softcap == 0, "soft cap: none");
    need(!l.has_sinks, "sinks: none");
    need(l.num_kv_heads > 0 && l.num_q_heads % l.num_kv_heads == 0 && l.head_dim > 0 &&
             l.v_head_dim > 0,
         "heads: query heads must be a multiple of key heads, sizes above 0");
}

assay_status check(const assay_attn_config* config, const assay_attn_layer* layer,
                   std::int32_t phase, assay_error* why) {
    return sdk::guard(why, [&] {
        if (phase == ASSAY_MIXED) throw sdk::Error{ASSAY_UNSUPPORTED, "phase: not mixed"};
        must_serve(*config, *layer);
    });
}

assay_status kv_layout(const assay_attn_config* config, const assay_attn_layer* layer,
                       assay_kv_layout* out, assay_error* err) {
    return sdk::guard(err, [&] {
        must_serve(*config, *layer);
        const std::uint32_t tokens = page_tokens(*config);
        *out = {};
        out->size = sizeof *out;
        std::snprintf(out->id, sizeof out->id, "example.gqa.%dx%d+%d.f32.p%u/1",
                      layer->num_kv_heads, layer->head_dim, layer->v_head_dim, tokens);
        out->page_tokens = tokens;
        out->num_planes = 2;
        const auto k_width = static_cast<std::uint32_t>(layer->num_kv_heads * layer->head_dim);
        const auto v_width = static_cast<std::uint32_t>(layer->num_kv_heads * layer->v_head_dim);
        out->planes[0] = {"k", ASSAY_F32, k_width, k_width * std::uint64_t{4}};
        out->planes[1] = {"v", ASSAY_F32, v_width, v_width * std::uint64_t{4}};
    });
}

assay_status create(const assay_host*, const assay_attn_config* config,
                    const assay_attn_layer* const* layers, std::uint32_t num_layers, void** self,
                    char tier[32], assay_error* err) {
    return sdk::guard(err, [&] {
        auto instance = std::make_unique<Instance>();
        instance->page_tokens = page_tokens(*config);
        for (std::uint32_t i = 0; i < num_layers; ++i) {
            const assay_attn_layer& l = *layers[i];
            must_serve(*config, l);
            instance->layers.push_back(
                {l.num_q_heads, l.num_kv_heads, l.head_dim, l.v_head_dim, double{l.softmax_scale}});
        }
        std::snprintf(tier, 32, "plain loops");
        *self = instance.release();
    });
}

void destroy(void* self) {
    delete static_cast<Instance*>(self);
}

assay_status sizes(void*, std::int32_t, std::int32_t, std::int32_t, std::uint64_t* plan_bytes,
                   std::uint64_t* workspace_bytes, assay_error*) {
    *plan_bytes = *workspace_bytes = 0;
    return ASSAY_OK;
}

/// Pages are [page, offset, head, dim], so a slot's row lies at slot * width.
assay_status append(void* self, std::uint32_t layer, const assay_attn_args* a, const assay_stream*,
                    assay_error*) {
    const Shape& l = static_cast<const Instance*>(self)->layers[layer];
    const assay_attn_batch& b = *a->batch;
    for (std::int32_t row = b.host_cu_q[0]; row < b.host_cu_q[b.num_seqs]; ++row) {
        const std::int64_t slot = b.slot_map[row];
        if (slot < 0) continue;
        for (std::int64_t h = 0; h < l.kv_heads; ++h) {
            float* k = static_cast<float*>(a->planes[0]) + (slot * l.kv_heads + h) * l.head_dim;
            float* v = static_cast<float*>(a->planes[1]) + (slot * l.kv_heads + h) * l.v_dim;
            std::copy_n(sdk::at<float>(a->k, row, h), l.head_dim, k);
            std::copy_n(sdk::at<float>(a->v, row, h), l.v_dim, v);
        }
    }
    return ASSAY_OK;
}

/// One query token and head against the first num_keys tokens of its sequence.
void attend(const Shape& l, std::int64_t tokens_per_page, const assay_attn_args& a,
            const std::int32_t* blocks, std::int64_t num_keys, std::int64_t row,
            std::int64_t head) {
    const std::int64_t kv_head = head / (l.q_heads / l.kv_heads);
    const float* q = sdk::at<float>(a.q, row, head);
    float* out = sdk::at<float>(a.out, row, head);
    const auto index = [&](std::int64_t s) {  // of key s and the head, in the pages
        const std::int64_t slot =
            blocks[s / tokens_per_page] * tokens_per_page + s % tokens_per_page;
        return slot * l.kv_heads + kv_head;
    };
    const auto score = [&](std::int64_t s) {
        const float* k = static_cast<const float*>(a.planes[0]) + index(s) * l.head_dim;
        double dot = 0;
        for (std::int64_t i = 0; i < l.head_dim; ++i) dot += double{q[i]} * double{k[i]};
        return dot * l.scale;
    };
    double max = -HUGE_VAL, sum = 0;
    for (std::int64_t s = 0; s < num_keys; ++s) max = std::max(max, score(s));
    for (std::int64_t s = 0; s < num_keys; ++s) sum += std::exp(score(s) - max);
    std::fill_n(out, l.v_dim, 0.0f);
    for (std::int64_t s = 0; s < num_keys; ++s) {
        const float* v = static_cast<const float*>(a.planes[1]) + index(s) * l.v_dim;
        const double p = std::exp(score(s) - max) / sum;
        for (std::int64_t i = 0; i < l.v_dim; ++i)
            out[i] = static_cast<float>(double{out[i]} + p * double{v[i]});
    }
    if (a.lse.data != nullptr)
        *sdk::at<float>(a.lse, row, head) = static_cast<float>(max + std::log(sum));
}

assay_status run(void* self, std::uint32_t layer, const assay_attn_args* a, const assay_stream* s,
                 assay_error*) {
    const Instance& instance = *static_cast<const Instance*>(self);
    const Shape& l = instance.layers[layer];
    const assay_attn_batch& b = *a->batch;
    for (std::int32_t seq = 0; seq < b.num_seqs; ++seq) {
        const std::int64_t first = b.host_cu_q[seq], q_len = b.host_cu_q[seq + 1] - first;
        const std::int64_t past = b.host_kv_len[seq] - q_len;
        const std::int32_t* blocks = b.block_table + std::int64_t{seq} * b.max_blocks;
        sdk::parallel_for(s->lanes, q_len * l.q_heads, [&](std::uint32_t item, std::uint32_t) {
            const std::int64_t j = item / l.q_heads, head = item % l.q_heads;
            attend(l, instance.page_tokens, *a, blocks, past + j + 1, first + j, head);
        });
    }
    return ASSAY_OK;
}

assay_status kv_read(void* self, std::uint32_t layer, std::uint32_t plane,
                     void* const planes[ASSAY_MAX_PLANES], const std::int32_t* slots,
                     std::int64_t num_slots, const assay_tensor* out, const assay_stream*,
                     assay_error*) {
    const Shape& l = static_cast<const Instance*>(self)->layers[layer];
    const std::int64_t width = l.kv_heads * (plane == 0 ? l.head_dim : l.v_dim);
    for (std::int64_t i = 0; i < num_slots; ++i) {
        float* to = sdk::at<float>(*out, i);
        if (slots[i] < 0)
            std::fill_n(to, width, 0.0f);
        else
            std::copy_n(static_cast<const float*>(planes[plane]) + slots[i] * width, width, to);
    }
    return ASSAY_OK;
}

constexpr std::uint64_t kF32 = std::uint64_t{1} << ASSAY_F32;
constexpr assay_attn_cap kGqa = {
    .size = sizeof(assay_attn_cap),
    .attn_class = ASSAY_ATTN_GQA,
    .min_arch = 0,
    .max_arch = 0,
    .max_head_dim = 0,  // any
    .io_dtypes = kF32,
    .kv_dtypes = kF32,
    .phases = ASSAY_PREFILL | ASSAY_DECODE,
    .phases_absent = ASSAY_MIXED,
    .absent_reason = "an example has one phase a call",
    .flags = ASSAY_ATTN_LSE | ASSAY_ATTN_ORDERED,
};
constexpr const assay_attn_cap* kCaps[] = {&kGqa};

constexpr assay_attention kAttention = {
    .size = sizeof(assay_attention),
    .num_caps = 1,
    .caps = kCaps,
    .check = check,
    .kv_layout = kv_layout,
    .create = create,
    .destroy = destroy,
    .sizes = sizes,
    .prepare = nullptr,  // nothing to plan
    .append = append,
    .index = nullptr,  // no DSA
    .run = run,
    .kv_read = kv_read,
    .convert_pages = nullptr,
};

assay_status module_open(const assay_host*, assay_error*) {
    return ASSAY_OK;
}

const void* module_query(const char* interface_id) {
    return std::strcmp(interface_id, ASSAY_KIND_ATTENTION) == 0 ? &kAttention : nullptr;
}

void module_close() {}

}  // namespace

extern "C" const assay_module assay_module_entry = {
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = "example-attention",
    .version = "0.1.0",
    .vendor = "example",
    .build = "C++20",
    .kinds = ASSAY_KIND_ATTENTION,
    .open = module_open,
    .query = module_query,
    .close = module_close,
};
