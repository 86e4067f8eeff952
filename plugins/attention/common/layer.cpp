#include "layer.hpp"

#include <cmath>
#include <string>

namespace attention {
namespace {

[[noreturn]] void refuse(assay_code code, const std::string& what) {
    throw sdk::Error{code, what};
}

std::string number(std::int64_t value) {
    return std::to_string(value);
}

bool holds(std::uint64_t dtypes, std::int32_t dtype) {
    return dtype >= 0 && dtype <= ASSAY_F64 && ((dtypes >> dtype) & 1U) != 0;
}

std::string names(std::uint64_t dtypes) {
    std::string list;
    for (std::int32_t d = ASSAY_F32; d <= ASSAY_F64; ++d)
        if (holds(dtypes, d)) list += (list.empty() ? "" : ", ") + std::string{sdk::dtype_name(d)};
    return list;
}

const char* class_name(std::int32_t attn_class) {
    return attn_class == ASSAY_ATTN_GQA ? "GQA" : attn_class == ASSAY_ATTN_MLA ? "MLA" : "MLA_DSA";
}

void require_range(const Image& image, const char* what, std::int64_t value, std::int64_t low,
                   std::int64_t high) {
    if (value < 1)
        refuse(ASSAY_INVALID, std::string{what} + " is " + number(value) + ", must be at least 1");
    if (value < low || value > high)
        refuse(ASSAY_UNSUPPORTED, std::string{what} + " is " + number(value) + "; " + image.id +
                                      " serves " + number(low) + " to " + number(high));
}

void resolve_gqa(const Image& image, const assay_attn_layer& in, Layer& out) {
    if (in.num_kv_heads < 1 || in.num_q_heads < 1 || in.num_q_heads % in.num_kv_heads != 0)
        refuse(ASSAY_INVALID, "num_q_heads is " + number(in.num_q_heads) +
                                  ", must be a positive multiple of num_kv_heads, " +
                                  number(in.num_kv_heads));
    const std::int32_t v_head_dim = in.v_head_dim != 0 ? in.v_head_dim : in.head_dim;
    require_range(image, "head_dim", in.head_dim, image.min_head_dim, image.max_head_dim);
    require_range(image, "v_head_dim", v_head_dim, image.min_head_dim, image.max_head_dim);
    out.num_kv_heads = in.num_kv_heads;
    out.key_dim = in.head_dim;
    out.value_dim = v_head_dim;
}

void resolve_mla(const Image& image, const assay_attn_layer& in, Layer& out) {
    if (in.num_q_heads < 1)
        refuse(ASSAY_INVALID, "num_q_heads is " + number(in.num_q_heads) + ", must be at least 1");
    if (in.kv_lora_rank < 1 || in.qk_rope_head_dim < 0)
        refuse(ASSAY_INVALID, "kv_lora_rank is " + number(in.kv_lora_rank) +
                                  " and qk_rope_head_dim " + number(in.qk_rope_head_dim) +
                                  ": the first must be positive, the second not negative");
    out.num_kv_heads = 1;
    out.key_dim = std::int64_t{in.kv_lora_rank} + in.qk_rope_head_dim;
    out.value_dim = in.kv_lora_rank;
    require_range(image, "kv_lora_rank + qk_rope_head_dim", out.key_dim, 1, image.max_latent_dim);
}

void resolve_index(const Image& image, const assay_attn_layer& in, Layer& out) {
    if (in.index_role != ASSAY_INDEX_FULL && in.index_role != ASSAY_INDEX_SHARED)
        refuse(ASSAY_INVALID, "index_role is " + number(in.index_role) +
                                  "; a layer of class MLA_DSA is full (1) or shared (2)");
    if (in.index_topk < 1)
        refuse(ASSAY_INVALID, "index_topk is " + number(in.index_topk) + ", must be at least 1");
    if (in.window != 0)
        refuse(ASSAY_UNSUPPORTED,
               "a sliding window over a sparse selection (MLA_DSA) is not served");
    out.index_role = in.index_role;
    out.index_topk = in.index_topk;
    if (!out.has_index()) return;
    require_range(image, "index_n_heads", in.index_n_heads, 1, 256);
    require_range(image, "index_head_dim", in.index_head_dim, 1, image.max_index_head_dim);
    out.index_n_heads = in.index_n_heads;
    out.index_head_dim = in.index_head_dim;
}

}  // namespace

Cache resolve_cache(const Image& image, const assay_attn_config& config) {
    if (config.size < sizeof config)
        refuse(ASSAY_INVALID, "config.size is " + number(config.size) + ", expected at least " +
                                  number(sizeof config));
    if (config.device != nullptr && config.device->kind != nullptr &&
        std::string_view{config.device->kind} != image.device_kind)
        refuse(ASSAY_UNSUPPORTED, std::string{"device kind is "} + config.device->kind + "; " +
                                      image.id + " runs on " + image.device_kind);
    if (!holds(image.io_dtypes, config.io_dtype))
        refuse(ASSAY_UNSUPPORTED, std::string{"io dtype is "} + sdk::dtype_name(config.io_dtype) +
                                      "; " + image.id + " takes " + names(image.io_dtypes));
    const std::int32_t dtype =
        config.kv_dtype != ASSAY_DTYPE_NONE ? config.kv_dtype : image.default_kv_dtype;
    if (!holds(image.kv_dtypes, dtype))
        refuse(ASSAY_UNSUPPORTED, std::string{"KV cache dtype is "} + sdk::dtype_name(dtype) +
                                      "; " + image.id + " keeps " + names(image.kv_dtypes));
    const std::uint32_t page =
        config.page_tokens != 0 ? config.page_tokens : image.default_page_tokens;
    if (page % image.page_step != 0 || page > image.max_page_tokens)
        refuse(ASSAY_UNSUPPORTED, "page of " + number(page) + " tokens; " + image.id + " takes " +
                                      (image.page_step == image.max_page_tokens
                                           ? number(image.page_step)
                                           : "multiples of " + number(image.page_step) + " up to " +
                                                 number(image.max_page_tokens)));
    return {dtype, page};
}

Layer resolve_layer(const Image& image, const assay_attn_layer& in) {
    if (in.size < sizeof in)
        refuse(ASSAY_INVALID,
               "layer.size is " + number(in.size) + ", expected at least " + number(sizeof in));
    Layer out{};
    out.attn_class = in.attn_class;
    out.num_q_heads = in.num_q_heads;
    if (in.attn_class >= ASSAY_ATTN_GQA && in.attn_class <= ASSAY_ATTN_MLA_DSA &&
        ((image.classes >> in.attn_class) & 1U) == 0) {
        std::string served;
        for (std::int32_t c = ASSAY_ATTN_GQA; c <= ASSAY_ATTN_MLA_DSA; ++c)
            if (((image.classes >> c) & 1U) != 0)
                served += (served.empty() ? "" : ", ") + std::string{class_name(c)};
        refuse(ASSAY_UNSUPPORTED, std::string{"attention class is "} + class_name(in.attn_class) +
                                      "; " + image.id + " serves " + served);
    }
    switch (in.attn_class) {
        case ASSAY_ATTN_GQA:
            resolve_gqa(image, in, out);
            break;
        case ASSAY_ATTN_MLA:
            resolve_mla(image, in, out);
            break;
        case ASSAY_ATTN_MLA_DSA:
            resolve_mla(image, in, out);
            resolve_index(image, in, out);
            break;
        default:
            refuse(ASSAY_UNSUPPORTED, "attention class " + number(in.attn_class) + " is not known");
    }
    out.group = out.num_q_heads / out.num_kv_heads;
    if (in.window < 0)
        refuse(ASSAY_INVALID, "window is " + number(in.window) + ", must not be negative");
    if (!std::isfinite(in.softmax_scale) || in.softmax_scale <= 0)
        refuse(ASSAY_INVALID, "softmax_scale is " + std::to_string(in.softmax_scale) +
                                  ", must be positive and finite");
    if (!std::isfinite(in.logit_softcap) || in.logit_softcap < 0)
        refuse(ASSAY_INVALID, "logit_softcap is " + std::to_string(in.logit_softcap) +
                                  ", must be 0 or positive and finite");
    out.window = in.window;
    out.scale = in.softmax_scale;
    out.softcap = in.logit_softcap;
    out.has_sinks = in.has_sinks;
    return out;
}

void check_phase(std::int32_t phase) {
    if (phase < 1 || phase > (ASSAY_PREFILL | ASSAY_DECODE | ASSAY_MIXED))
        refuse(ASSAY_INVALID,
               "phase " + number(phase) + " is not a set of prefill, decode and mixed");
}

void fill_layout(const Layer& layer, const Cache& cache, assay_kv_layout& out) {
    const std::uint32_t size = out.size;
    if (size < sizeof out)
        refuse(ASSAY_INVALID,
               "layout.size is " + number(size) + ", expected at least " + number(sizeof out));
    out = {};
    out.size = size;
    out.page_tokens = static_cast<std::uint32_t>(cache.page_tokens);
    out.num_planes = num_planes(layer);
    const auto plane = [&](std::uint32_t i, const char* name, std::int32_t dtype,
                           std::int64_t width) {
        assay_kv_plane& p = out.planes[i];
        std::snprintf(p.name, sizeof p.name, "%s", name);
        p.dtype = dtype;
        p.width = static_cast<std::uint32_t>(width);
        p.bytes_per_token = static_cast<std::uint64_t>(width * sdk::dtype_bytes(dtype));
    };
    const std::string dtype = sdk::dtype_name(cache.dtype);
    const std::string page = ".p" + number(cache.page_tokens) + "/1";
    std::string id;
    if (!layer.is_mla()) {
        plane(0, "k", cache.dtype, layer.key_row());
        plane(1, "v", cache.dtype, layer.value_row());
        id = "gqa.h" + number(layer.num_kv_heads) + ".d" + number(layer.key_dim) +
             (layer.value_dim != layer.key_dim ? "v" + number(layer.value_dim) : "") + "." + dtype;
    } else {
        plane(0, "latent", cache.dtype, layer.key_dim);
        id = number(layer.key_dim) + "." + dtype;
        if (layer.has_index()) {
            plane(kIndexPlane, "index_k", ASSAY_F32, layer.index_head_dim);
            id = "mla-dsa." + id + ".i" + number(layer.index_head_dim) + ".f32";
        } else {
            id = "mla." + id;
        }
    }
    std::snprintf(out.id, sizeof out.id, "%s%s", id.c_str(), page.c_str());
}

}  // namespace attention
