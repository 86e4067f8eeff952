// The tables, argument checks and the parts of plan and workspace. The only file that knows the
// ABI; the image's own folder says which layers its kernels take and queues them.

#include "checks.hpp"
#include "plugins/cuda/status.hpp"

#include IMAGE_HEADER

#include <algorithm>
#include <memory>

namespace attention::gpu {

const Image kImage = kImageData;

const char* tier_name(Tier tier) noexcept {
    return tier == Tier::plain ? "plain" : tier == Tier::mma ? "mma" : "wgmma";
}

BatchParams batch_params(const assay_attn_batch& batch, std::int64_t page_tokens) {
    const auto page = static_cast<std::uint32_t>(page_tokens);
    const auto factor = static_cast<std::uint32_t>((0x100000000ULL + page - 1) / page);  // 0 for 1
    return {batch.cu_q,       batch.kv_len, batch.block_table, batch.num_seqs,
            batch.max_blocks, {page, factor}};
}

View view(const assay_tensor& t) {
    return {t.data, t.dtype, t.stride[0], t.rank == 3 ? t.stride[1] : 0};
}

namespace {

constexpr std::uint64_t kPartialBytes = 512ULL << 20;  // of split keys, at most
constexpr std::int32_t kMostSplits = 128;
constexpr std::int64_t kMaxPositions = 1 << 24;  // PageDivider

Instance& instance(void* self) {
    return *static_cast<Instance*>(self);
}
const LayerPlan& layer_of(const Instance& in, std::uint32_t layer) {
    if (layer >= in.layers.size())
        throw sdk::Error{ASSAY_INVALID, "layer " + std::to_string(layer) + " of " +
                                            std::to_string(in.layers.size())};
    return in.layers[layer];
}

/// The GPU that a configuration names, after asking the driver whether there is one.
const assay_device_ref& require_device(const assay_attn_config& config) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        throw sdk::Error{ASSAY_UNSUPPORTED, std::string{"no CUDA device: "} +
                                                cudaGetErrorString(error) + " (" +
                                                cudaGetErrorName(error) + ")"};
    if (config.device == nullptr) throw sdk::Error{ASSAY_INVALID, "config.device is null"};
    if (config.device->ordinal < 0 || config.device->ordinal >= count)
        throw sdk::Error{ASSAY_INVALID, "device " + std::to_string(config.device->ordinal) + " of " +
                                            std::to_string(count)};
    cuda::require_target(*config.device);
    return *config.device;
}

Layer resolve(const assay_attn_config& config, const assay_attn_layer& layer, Tier* tier) {
    sdk::check_options(config, {"tier"});
    const Cache cache = resolve_cache(kImage, config);
    const Layer out = resolve_layer(kImage, layer);
    const assay_device_ref& device = require_device(config);
    *tier = kKernels.choose(out, cache, device, sdk::option(config, "tier", "auto"));
    return out;
}

assay_status check(const assay_attn_config* config, const assay_attn_layer* layer, int32_t phase,
                   assay_error* why) {
    return sdk::guard(why, [&] {
        check_phase(phase);
        Tier tier;
        (void)resolve(*config, *layer, &tier);
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
        in->cache = resolve_cache(kImage, *config);
        in->io_dtype = config->io_dtype;
        const assay_device_ref& device = require_device(*config);
        in->num_units = std::max(device.num_units, 1);
        in->shared_bytes = device.shared_optin_bytes;
        in->total_bytes = device.total_bytes;
        std::string tiers;
        for (std::uint32_t i = 0; i < num_layers; ++i) {
            LayerPlan plan{};
            plan.layer = resolve(*config, *layers[i], &plan.tier);
            const Layer& l = plan.layer;
            Geometry g{};
            g.group = static_cast<std::int32_t>(l.group);
            g.num_kv_heads = static_cast<std::int32_t>(l.num_kv_heads);
            g.window = l.window;
            g.topk = static_cast<std::int32_t>(l.is_sparse() ? l.index_topk : 0);
            kKernels.shape(*in, plan, g);
            const auto found = std::find(in->geometries.begin(), in->geometries.end(), g);
            plan.geometry = static_cast<std::size_t>(found - in->geometries.begin());
            if (found == in->geometries.end()) in->geometries.push_back(g);
            in->layers.push_back(plan);
            const std::string name = tier_name(plan.tier);
            if (tiers.find(name) == std::string::npos) tiers += (tiers.empty() ? "" : "+") + name;
        }
        std::snprintf(tier, 32, "%s", tiers.c_str());
        *self = in.release();
    });
}

void destroy(void* self) {
    delete static_cast<Instance*>(self);
}

std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + 255) / 256 * 256;
}
/// Rows of partial sums of a layer, and the bytes of both arrays.
std::int64_t partial_rows(const Instance& in, const LayerPlan& l) {
    return in.limits.max_seqs * in.geometries[l.geometry].max_splits * l.layer.num_q_heads;
}
std::uint64_t sum_bytes(const Instance& in, const LayerPlan& l) {
    return aligned(static_cast<std::uint64_t>(partial_rows(in, l) * l.layer.value_dim) * sizeof(float));
}
std::uint64_t state_bytes(const Instance& in, const LayerPlan& l) {
    return aligned(static_cast<std::uint64_t>(partial_rows(in, l)) * sizeof(float2));
}
std::uint64_t workspace_bytes(const Instance& in) {
    std::uint64_t most = kKernels.index_bytes != nullptr ? kKernels.index_bytes(in) : 0;
    for (const LayerPlan& l : in.layers) most = std::max(most, sum_bytes(in, l) + state_bytes(in, l));
    return most;
}

assay_status sizes(void* self, int32_t max_seqs, int32_t max_tokens, int32_t max_kv_len,
                   uint64_t* plan_bytes, uint64_t* workspace, assay_error* err) {
    return sdk::guard(err, [&] {
        if (max_seqs < 0 || max_tokens < 0 || max_kv_len < 0)
            throw sdk::Error{ASSAY_INVALID, "a size is negative"};
        if (max_kv_len > kMaxPositions)
            throw sdk::Error{ASSAY_UNSUPPORTED, "max_kv_len is " + std::to_string(max_kv_len) +
                                                    "; at most " + std::to_string(kMaxPositions)};
        Instance& in = instance(self);
        in.limits = {max_seqs, max_tokens, max_kv_len};
        // As many splits as fit; at least what the queries of a short sequence need.
        std::uint64_t budget = kPartialBytes;
        if (in.total_bytes != 0) budget = std::min(budget, in.total_bytes / 32);
        for (Geometry& g : in.geometries) {
            std::uint64_t row = 1;
            for (const LayerPlan& l : in.layers)
                if (&in.geometries[l.geometry] == &g)
                    row = std::max(row, static_cast<std::uint64_t>(l.layer.num_q_heads *
                                                                   (l.layer.value_dim + 2) * 4));
            const std::uint64_t keys =
                g.topk != 0 ? static_cast<std::uint64_t>(g.topk) : static_cast<std::uint64_t>(max_kv_len);
            const std::uint64_t fit = budget / (row * static_cast<std::uint64_t>(std::max(max_seqs, 1)));
            const std::uint64_t useful = kFewTokens * (keys / kSplitStep + 1);
            g.max_splits = static_cast<std::int32_t>(std::clamp<std::uint64_t>(
                std::min(fit, useful), kFewTokens, kMostSplits));
        }
        *plan_bytes = aligned(in.geometries.size() * static_cast<std::uint64_t>(section_entries(in.limits.max_seqs)) *
                              sizeof(std::int32_t));
        *workspace = workspace_bytes(in);
    });
}

template <class Args>
BatchShape check_call(const Instance& in, const Args& a) {
    if (a.size < sizeof a)
        throw sdk::Error{ASSAY_INVALID, "args.size is " + std::to_string(a.size) +
                                            ", expected at least " + std::to_string(sizeof a)};
    return check_batch(in, a.batch);
}

void check_workspace(const void* base, std::uint64_t bytes, std::uint64_t needed) {
    if (needed != 0 && (base == nullptr || bytes < needed))
        throw sdk::Error{ASSAY_INVALID, "workspace of " + std::to_string(bytes) + " bytes, needed " +
                                            std::to_string(needed)};
}

assay_status prepare(void* self, const assay_attn_batch* batch, int32_t, void* plan,
                     const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        const BatchShape shape = check_batch(in, batch);
        if (shape.num_tokens == 0) return;
        if (plan == nullptr) throw sdk::Error{ASSAY_INVALID, "plan is null"};
        cuda::check(launch_schedule(batch_params(*batch, in.cache.page_tokens), in.geometries.data(),
                                    in.geometries.size(), plan, in.limits.max_seqs, s),
                    "attention.prepare");
    });
}

assay_status append(void* self, uint32_t layer, const assay_attn_args* a, const assay_stream* s,
                    assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        const Layer& l = layer_of(in, layer).layer;
        const BatchShape shape = check_call(in, *a);
        if (shape.num_tokens == 0) return;
        if (a->batch->slot_map == nullptr) throw sdk::Error{ASSAY_INVALID, "slot_map is null"};
        const std::int64_t rows = shape.first_row + shape.num_tokens;
        const auto put = [&](const assay_tensor& t, std::uint32_t plane, std::int32_t dtype,
                             std::int64_t heads, std::int64_t dim) {
            check_plane(std::to_string(plane).c_str(), a->planes[plane]);
            const AppendParams p{view(t),
                                 a->planes[plane],
                                 dtype,
                                 static_cast<std::int32_t>(heads),
                                 static_cast<std::int32_t>(dim),
                                 a->batch->cu_q,
                                 a->batch->slot_map,
                                 a->batch->num_seqs};
            cuda::check(launch_append(p, shape.num_tokens, s), "attention.append");
        };
        if (l.is_mla()) {
            check_tensor("k", a->k, in.io_dtype, rows, {l.key_dim});
            put(a->k, 0, in.cache.dtype, 1, l.key_dim);
            if (!l.has_index()) return;
            check_tensor("index_k", a->index_k, in.io_dtype, rows, {l.index_head_dim});
            put(a->index_k, kIndexPlane, ASSAY_F32, 1, l.index_head_dim);
        } else {
            check_tensor("k", a->k, in.io_dtype, rows, {l.num_kv_heads, l.key_dim});
            check_tensor("v", a->v, in.io_dtype, rows, {l.num_kv_heads, l.value_dim});
            put(a->k, 0, in.cache.dtype, l.num_kv_heads, l.key_dim);
            put(a->v, 1, in.cache.dtype, l.num_kv_heads, l.value_dim);
        }
    });
}

assay_status index(void* self, uint32_t layer, const assay_attn_index_args* a, const assay_stream* s,
                   assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        const LayerPlan& plan = layer_of(in, layer);
        const Layer& l = plan.layer;
        if (!l.has_index())
            throw sdk::Error{ASSAY_INVALID, "index() of a layer without an indexer of its own"};
        const BatchShape shape = check_call(in, *a);
        if (shape.num_tokens == 0) return;
        const std::int64_t rows = shape.first_row + shape.num_tokens;
        check_tensor("q", a->q, in.io_dtype, rows, {l.index_n_heads, l.index_head_dim});
        check_tensor("head_weight", a->head_weight, ASSAY_F32, rows, {l.index_n_heads});
        check_tensor("topk_slots", a->topk_slots, ASSAY_I32, rows, {l.index_topk});
        check_plane("index_k", a->planes[kIndexPlane]);
        check_workspace(a->workspace, a->workspace_bytes, kKernels.index_bytes(in));
        cuda::check(kKernels.index(in, plan, *a, batch_params(*a->batch, in.cache.page_tokens), s),
                    "attention.index");
    });
}

AttendParams attend_params(const Instance& in, const LayerPlan& plan, const assay_attn_args& a) {
    const Layer& l = plan.layer;
    AttendParams p{};
    p.batch = batch_params(*a.batch, in.cache.page_tokens);
    p.schedule = section(a.plan, in.limits.max_seqs, plan.geometry);
    p.shape = in.geometries[plan.geometry];
    p.num_q_heads = static_cast<std::int32_t>(l.num_q_heads);
    p.key_dim = static_cast<std::int32_t>(l.key_dim);
    p.value_dim = static_cast<std::int32_t>(l.value_dim);
    p.scale = l.scale;
    p.softcap = l.softcap;
    p.q = view(a.q);
    p.out = view(a.out);
    p.lse = static_cast<float*>(a.lse.data);
    p.lse_stride = a.lse.stride[0];
    p.sinks = l.has_sinks ? static_cast<const float*>(a.sinks.data) : nullptr;
    p.keys = a.planes[0];
    p.values = l.is_mla() ? a.planes[0] : a.planes[1];
    p.key_row = l.key_row();
    p.value_row = l.is_mla() ? l.key_row() : l.value_row();
    p.topk_slots = static_cast<const std::int32_t*>(a.topk_slots.data);
    p.topk_stride = a.topk_slots.stride[0];
    auto* base = static_cast<char*>(a.workspace);
    p.partial_sum = reinterpret_cast<float*>(base);
    p.partial_state = reinterpret_cast<float2*>(base + sum_bytes(in, plan));
    return p;
}

assay_status run(void* self, uint32_t layer, const assay_attn_args* a, const assay_stream* s,
                 assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        const LayerPlan& plan = layer_of(in, layer);
        const BatchShape shape = check_call(in, *a);
        if (shape.num_tokens == 0) return;
        check_run(in, plan.layer, *a, shape.first_row + shape.num_tokens);
        check_workspace(a->workspace, a->workspace_bytes, sum_bytes(in, plan) + state_bytes(in, plan));
        if (a->plan == nullptr) throw sdk::Error{ASSAY_INVALID, "plan is null"};
        const AttendParams p = attend_params(in, plan, *a);
        const std::int64_t many = many_tiles(*a->batch, p.shape) * p.shape.num_kv_heads;
        cuda::check(kKernels.attend(in, plan, p, shape.has_few, static_cast<int>(many), s),
                    "attention.run");
        if (shape.has_few) cuda::check(launch_combine(p, shape.num_tokens, s), "attention.run, merging");
    });
}

assay_status read(void* self, uint32_t layer, uint32_t plane, void* const planes[ASSAY_MAX_PLANES],
                  const int32_t* slots, int64_t num_slots, const assay_tensor* out,
                  const assay_stream* s, assay_error* err) {
    return sdk::guard(err, [&] {
        const Instance& in = instance(self);
        const Layer& l = layer_of(in, layer).layer;
        if (plane >= num_planes(l))
            throw sdk::Error{ASSAY_INVALID, "plane " + std::to_string(plane) + "; the layer has " +
                                                std::to_string(num_planes(l))};
        if (num_slots == 0) return;
        const bool is_index = l.is_mla() && plane == kIndexPlane;
        const std::int64_t width = is_index ? l.index_head_dim : plane == 0 ? l.key_row() : l.value_row();
        check_tensor("out", *out, ASSAY_F32, num_slots, {width});
        if (slots == nullptr) throw sdk::Error{ASSAY_INVALID, "slots is null"};
        if (planes == nullptr) throw sdk::Error{ASSAY_INVALID, "planes is null"};
        check_plane(std::to_string(plane).c_str(), planes[plane]);
        const ReadParams p{planes[plane],
                           is_index ? std::int32_t{ASSAY_F32} : in.cache.dtype,
                           static_cast<std::int32_t>(width),
                           slots,
                           static_cast<float*>(out->data),
                           out->stride[0]};
        cuda::check(launch_read(p, num_slots, s), "attention.kv_read");
    });
}

constexpr assay_attention kAttention{
    .size = sizeof(assay_attention),
    .num_caps = sizeof kCaps / sizeof kCaps[0],
    .caps = kCaps,
    .check = check,
    .kv_layout = kv_layout,
    .create = create,
    .destroy = destroy,
    .sizes = sizes,
    .prepare = prepare,
    .append = append,
    .index = index,
    .run = run,
    .kv_read = read,
    .convert_pages = nullptr,
};

assay_status open(const assay_host*, assay_error*) {
    return ASSAY_OK;  // without a driver check() refuses, in words
}
const void* query(const char* id) {
    return std::string_view{id} == ASSAY_KIND_ATTENTION ? &kAttention : nullptr;
}
void close() {}

}  // namespace
}  // namespace attention::gpu

extern "C" const assay_module assay_module_entry{
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = IMAGE_ID,
    .version = "0.1.0",
    .vendor = "assay",
    .build = "nvcc " ASSAY_CUDA_VERSION "; compute capability " ASSAY_CUDA_TARGETS,
    .kinds = ASSAY_KIND_ATTENTION,
    .open = attention::gpu::open,
    .query = attention::gpu::query,
    .close = attention::gpu::close,
};
