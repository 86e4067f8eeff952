// Which kernels take a layer, and their launches.

#include "../cuda-common/instance.hpp"
#include "mla.hpp"

#include <algorithm>
#include <string>

namespace attention::gpu {
namespace {

constexpr std::int32_t kSmallRows = 16, kLargeRows = 64;
constexpr std::uint64_t kScoreBytes = 256ULL << 20;  // of index scores, at most

std::string mma_refusal(const Layer& l, const Cache& cache) {
    if (cache.dtype == ASSAY_F32) return "an f32 cache has no tensor-core kernel";
    if (l.key_dim % 8 != 0)
        return "kv_lora_rank + qk_rope_head_dim, " + std::to_string(l.key_dim) +
               ", is not a multiple of 8";
    if (l.key_dim > kMaxKeyDim || l.value_dim > kMaxValueDim)
        return "kv_lora_rank " + std::to_string(l.value_dim) + " and qk_rope_head_dim " +
               std::to_string(l.key_dim - l.value_dim) + "; at most 512 and 576 together";
    return "";
}

std::string wgmma_refusal(const Layer& l, const Cache& cache, const assay_device_ref& device) {
    if (std::string words = mma_refusal(l, cache); !words.empty()) return words;
    if (device.arch != 90 || !has_wgmma())
        return "compute capability " + std::to_string(device.arch / 10) + "." +
               std::to_string(device.arch % 10) + "; wgmma is of 9.0";
    return "";
}

Tier choose(const Layer& l, const Cache& cache, const assay_device_ref& device,
            std::string_view wanted) {
    const std::string no_mma = mma_refusal(l, cache), no_wgmma = wgmma_refusal(l, cache, device);
    if (wanted == "auto")
        return no_wgmma.empty() ? Tier::wgmma : no_mma.empty() ? Tier::mma : Tier::plain;
    if (wanted == "plain") return Tier::plain;
    if (wanted != "mma" && wanted != "wgmma")
        throw sdk::Error{ASSAY_UNSUPPORTED, "option tier is \"" + std::string{wanted} +
                                                "\"; known: auto, plain, mma, wgmma"};
    const std::string& words = wanted == "mma" ? no_mma : no_wgmma;
    if (!words.empty())
        throw sdk::Error{ASSAY_UNSUPPORTED, "tier " + std::string{wanted} + ": " + words};
    return wanted == "mma" ? Tier::mma : Tier::wgmma;
}

void shape(const Instance& in, const LayerPlan& plan, Geometry& g) {
    if (plan.tier == Tier::plain) {
        g.few_rows = g.many_rows = kPlainRows;
        g.wanted_items = 4 * in.num_units;
        return;
    }
    if (plan.tier == Tier::wgmma) {
        // Up to 16 heads, 64 rows would be three quarters padding: mma.sync reads faster there.
        const bool is_narrow = g.group <= kSmallRows;
        g.few_rows = is_narrow ? kSmallRows : kWgmmaRows;
        g.many_rows = is_narrow && g.topk != 0 ? kSmallRows : kWgmmaRows;
        g.wanted_items = is_narrow ? 2 * in.num_units : in.num_units;
        return;
    }
    const bool has_large = in.shared_bytes >= mma_shared_bytes(kLargeRows);
    g.few_rows = has_large && g.group > kSmallRows ? kLargeRows : kSmallRows;
    // A selection belongs to one token, whose heads are the rows; dense rows go on over tokens.
    g.many_rows = has_large && (g.topk == 0 || g.group > kSmallRows) ? kLargeRows : kSmallRows;
    g.wanted_items = g.few_rows == kLargeRows ? in.num_units : 2 * in.num_units;
}

cudaError_t attend(const Instance& in, const LayerPlan& plan, const AttendParams& p, bool has_few,
                   int many_items, const assay_stream* s) {
    if (plan.tier == Tier::plain)
        return launch_plain(p, in.cache.dtype, has_few ? 4 * in.num_units : 0, many_items, s);
    const auto queue = [&](std::int32_t rows, int items) {
        return plan.tier == Tier::wgmma && rows == kWgmmaRows
                   ? launch_wgmma(p, in.cache.dtype, items, in.num_units, s)
                   : launch_mma(p, in.cache.dtype, rows, items, in.num_units, s);
    };
    if (has_few) {
        const cudaError_t error = queue(p.shape.few_rows, 0);
        if (error != cudaSuccess) return error;
    }
    if (many_items == 0) return cudaSuccess;
    return queue(p.shape.many_rows, many_items);
}

std::int64_t score_stride(const Instance& in) {
    return (in.limits.max_kv_len + 63) / 64 * 64;
}

/// Tokens whose scores are held at once.
std::int64_t wave_tokens(const Instance& in) {
    const auto row = static_cast<std::uint64_t>(std::max<std::int64_t>(score_stride(in), 1)) * 4;
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(kScoreBytes / row), 1,
                                    std::max<std::int64_t>(in.limits.max_tokens, 1));
}

std::uint64_t index_bytes(const Instance& in) {
    const bool has_index = std::any_of(in.layers.begin(), in.layers.end(),
                                       [](const LayerPlan& l) { return l.layer.has_index(); });
    return has_index ? static_cast<std::uint64_t>(wave_tokens(in) * score_stride(in)) * 4 : 0;
}

cudaError_t index(const Instance& in, const LayerPlan& plan, const assay_attn_index_args& a,
                  const BatchParams& batch, const assay_stream* s) {
    const Layer& l = plan.layer;
    IndexParams p{};
    p.batch = batch;
    p.q = view(a.q);
    p.head_weight = static_cast<const float*>(a.head_weight.data);
    p.weight_stride = a.head_weight.stride[0];
    p.keys = static_cast<const float*>(a.planes[kIndexPlane]);
    p.heads = static_cast<std::int32_t>(l.index_n_heads);
    p.dim = static_cast<std::int32_t>(l.index_head_dim);
    p.topk = static_cast<std::int32_t>(l.index_topk);
    p.scores = static_cast<float*>(a.workspace);
    p.score_stride = score_stride(in);
    p.topk_slots = static_cast<std::int32_t*>(a.topk_slots.data);
    p.topk_stride = a.topk_slots.stride[0];
    const std::int32_t tokens = a.batch->host_cu_q[a.batch->num_seqs] - a.batch->host_cu_q[0];
    // A captured launch must do for every length that is replayed.
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(s->native), &capture);
        error != cudaSuccess)
        return error;
    const std::int32_t max_kv_len = capture == cudaStreamCaptureStatusNone
                                        ? a.batch->max_kv_len
                                        : static_cast<std::int32_t>(in.limits.max_kv_len);
    const auto wave = static_cast<std::int32_t>(wave_tokens(in));
    for (p.first_token = 0; p.first_token < tokens; p.first_token += wave) {
        p.num_tokens = std::min(wave, tokens - p.first_token);
        cudaError_t error = launch_index_scores(p, max_kv_len, s);
        if (error == cudaSuccess) error = launch_topk(p, s);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

}  // namespace

const Kernels kKernels{choose, shape, attend, index_bytes, index};

}  // namespace attention::gpu
