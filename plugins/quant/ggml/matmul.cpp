#include "plugins/quant/ggml/matmul.hpp"

#include "cxx/plugin.hpp"
#include "plugins/quant/ggml/call.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace ggml {
namespace {

/// Products below this many multiply-adds are not worth waking other lanes for (about 3 us).
constexpr std::int64_t kMinParallelOps = 1 << 17;
/// The same for elements of x to be quantized.
constexpr std::int64_t kMinParallelQuantize = 1 << 14;
/// Tasks a lane, so that lanes that start late or run slow cost little.
constexpr std::int64_t kTasksPerLane = 8;
constexpr std::int64_t kMaxTaskRows = 128;

/// What a weight set needs of the workspace. Two panels when two products meet in a tile (glu).
struct Needs {
    std::int64_t panel_bytes[2];
    bool has_groups32, has_groups16;
};

void add_panel(Needs& needs, const WeightKernel& kernel, int part, std::int64_t k) {
    if (kernel.group == 32) needs.has_groups32 = true;
    if (kernel.group == 16) needs.has_groups16 = true;
    if (kernel.panel_bytes != nullptr)
        needs.panel_bytes[part] = std::max(needs.panel_bytes[part], kernel.panel_bytes(k));
}

/// The scratch of one worker: panels of weights, and the products of a tile.
struct Slot {
    std::byte* panel[2];
    std::byte* product[2];
};

struct Layout {
    std::int32_t* active;  // [num_experts] experts with slots, for grouped products
    QuantizedX x;
    Slot first;  // later slots follow at slot_bytes
    std::uint64_t shared_bytes, slot_bytes;
};

Layout lay_out(void* base, const Tier& tier, const Needs& needs, std::int64_t k, std::int64_t num_x,
               int num_planes, std::int64_t num_experts) {
    Scratch scratch{base};
    Layout l{};
    l.active = scratch.take<std::int32_t>(num_experts);
    l.x.num_runs = (k + kRunCols - 1) / kRunCols;
    l.x.num_planes = num_planes;
    if (needs.has_groups32 || needs.has_groups16) {
        l.x.run_bytes = kRunCols;
        if (needs.has_groups32)
            l.x.at32 = std::exchange(l.x.run_bytes, l.x.run_bytes + std::int64_t{sizeof(Groups32)});
        if (needs.has_groups16)
            l.x.at16 = std::exchange(l.x.run_bytes, l.x.run_bytes + std::int64_t{sizeof(Groups16)});
        l.x.data = scratch.take<std::uint8_t>(num_x * num_planes * l.x.row_bytes());
    }
    l.shared_bytes = scratch.used();
    for (int part = 0; part < 2; ++part) {
        l.first.panel[part] = scratch.take<std::byte>(needs.panel_bytes[part]);
        l.first.product[part] = scratch.take<std::byte>(kTileTokens * kTileRows * tier.sum_bytes);
    }
    l.slot_bytes = scratch.used() - l.shared_bytes;
    return l;
}

/// The call in flight: shared by the workers, read-only but for the task counter.
struct Work {
    const Tier& tier;
    const Call& call;
    const Layout& layout;
    bool is_indexed_by_slot;  // rows of layout.x are slots, not rows of x
    std::int64_t num_active, tasks_per_expert, task_rows;
    std::atomic<std::int64_t> next_task{0};

    [[nodiscard]] std::int64_t num_tasks() const { return num_active * tasks_per_expert; }
};

std::int64_t num_blocks(std::int64_t rows, std::int64_t block) {
    return (rows + block - 1) / block;
}

Slot slot_at(const Layout& l, std::int64_t index) {
    Slot slot = l.first;
    for (int part = 0; part < 2; ++part) {
        slot.panel[part] += static_cast<std::uint64_t>(index) * l.slot_bytes;
        slot.product[part] += static_cast<std::uint64_t>(index) * l.slot_bytes;
    }
    return slot;
}

/// Adds the products of the planes of each token: [tokens * planes, kTileRows] to [tokens,
/// kTileRows].
void add_planes(float* product, int num_tokens) {
    for (int t = 0; t < num_tokens; ++t) {
        const float* pair = product + t * kMaxPlanes * kTileRows;
        for (int r = 0; r < kTileRows; ++r)
            product[t * kTileRows + r] = pair[r] + pair[kTileRows + r];
    }
}

/// One stack of kTileRows weight rows against all its tokens.
/// @param i  the output, and the weight unless it is a glu, which reads weights 0 and 1
void run_tile_rows(const Work& work, const Slot& slot, int i, std::int64_t e, std::int64_t row,
                   int num_rows) {
    const Call& call = work.call;
    const Slots slots = call.slots(e);
    const int num_parts = call.is_glu() ? 2 : 1;

    TileArgs tile[2];
    bool is_direct[2];
    int planes[2];  // of x, as this weight's kernel reads it
    for (int part = 0; part < num_parts; ++part) {
        const int weight = i + part;
        const WeightKernel& kernel = *call.kernel[weight];
        const std::int64_t row_bytes = call.format[weight]->row_bytes(call.k);
        planes[part] = kernel.group == 0 ? 1 : call.num_planes();
        is_direct[part] = slots.count * planes[part] <= kernel.max_direct_tokens;
        tile[part].rows = call.w(weight, e, row);
        tile[part].panel = slot.panel[part];
        tile[part].row_bytes = row_bytes;
        tile[part].k = call.k;
        tile[part].num_rows = num_rows;
        tile[part].quantized = &work.layout.x;
        tile[part].out = slot.product[part];
        if (!is_direct[part])
            kernel.pack({call.format[weight], tile[part].rows, row_bytes, call.k, num_rows,
                         slot.panel[part]});
    }

    EpilogueArgs out{};
    out.num_rows = num_rows;
    out.glu = call.args->glu;
    out.glu_alpha = call.args->glu_alpha;
    out.glu_limit = call.args->glu_limit;
    out.accumulate = (call.args->flags & ASSAY_MM_ACCUMULATE) != 0;
    for (int part = 0; part < num_parts; ++part) {
        out.product[part] = slot.product[part];
        out.bias[part] = call.bias(i + part, e, row);
    }

    const int step = kTileTokens / call.num_planes();
    for (std::int64_t t0 = 0; t0 < slots.count; t0 += step) {
        out.num_tokens = static_cast<int>(std::min<std::int64_t>(step, slots.count - t0));
        for (int t = 0; t < out.num_tokens; ++t) {
            const std::int64_t s = slots.first + t0 + t;
            const std::int64_t x_row = call.x_row(s, e);
            for (int part = 0; part < num_parts; ++part) {
                tile[part].x[t] = call.x(x_row);
                const std::int64_t index = work.is_indexed_by_slot ? s : x_row;
                for (int p = 0; p < planes[part]; ++p)
                    tile[part].x_index[t * planes[part] + p] = index * planes[part] + p;
            }
            out.y[t] = call.y(i, s, e) + row;
        }
        for (int part = 0; part < num_parts; ++part) {
            const WeightKernel& kernel = *call.kernel[i + part];
            tile[part].num_tokens = out.num_tokens * planes[part];
            (is_direct[part] ? kernel.tile_direct : kernel.tile_panel)(tile[part]);
            if (planes[part] > 1)
                add_planes(reinterpret_cast<float*>(slot.product[part]), out.num_tokens);
        }
        work.tier.epilogue(out);
    }
}

/// A task is a block of task_rows rows of one weight of one expert.
void run_task(const Work& work, const Slot& slot, std::int64_t task) {
    const Call& call = work.call;
    const std::int64_t index = task / work.tasks_per_expert;
    const std::int64_t e = call.op == ASSAY_Q_GROUPED ? work.layout.active[index] : index;
    std::int64_t block = task % work.tasks_per_expert;
    int i = 0;
    for (; i + 1 < call.num_outputs(); ++i) {
        const std::int64_t here = num_blocks(call.args->w[i]->rows, work.task_rows);
        if (block < here) break;
        block -= here;
    }
    const std::int64_t n = call.args->w[i]->rows;
    const std::int64_t end = std::min(n, (block + 1) * work.task_rows);
    for (std::int64_t row = block * work.task_rows; row < end; row += kTileRows)
        run_tile_rows(work, slot, i, e, row,
                      static_cast<int>(std::min<std::int64_t>(kTileRows, end - row)));
}

void quantize_rows(const Tier& tier, const Call& call, const QuantizedX& x, bool by_slot,
                   const assay_lanes* lanes) {
    const bool is_grouped = call.op == ASSAY_Q_GROUPED;
    const std::int64_t first = by_slot ? call.args->expert_offset[0] : 0;
    const std::int64_t end = by_slot ? call.args->expert_offset[call.num_experts] : call.num_x_rows;
    const auto one = [&](std::uint32_t i, std::uint32_t) {
        const std::int64_t row = first + i;
        const std::int64_t x_row = by_slot && is_grouped ? call.x_row(row, 0) : row;
        tier.quantize_x({call.x(x_row), call.k, row, &x});
    };
    const bool is_small = (end - first) * call.k < kMinParallelQuantize;
    sdk::parallel_for(is_small ? nullptr : lanes, end - first, one);
}

Needs needs_of(const Call& call) {
    Needs needs{};
    for (int i = 0; i < call.args->num_weights; ++i)
        add_panel(needs, *call.kernel[i], call.is_glu() ? i : 0, call.k);
    return needs;
}

}  // namespace

std::uint64_t workspace_bytes(const Tier& tier, std::uint32_t num_lanes, std::int32_t op,
                              const assay_weight* const* w, std::int32_t num_weights,
                              std::int64_t max_m) noexcept {
    if (op == ASSAY_Q_ROWS || op == ASSAY_Q_REPACK || w == nullptr) return 0;
    Needs needs{};
    for (int i = 0; i < num_weights; ++i) {
        const Format* format =
            w[i] != nullptr && w[i]->format != nullptr ? find_format(w[i]->format) : nullptr;
        if (format == nullptr) return 0;  // such a call is refused before it needs any
        for (const bool precise : {false, true})
            for (int part = 0; part < (num_weights == 2 ? 2 : 1); ++part)
                add_panel(needs, *tier.kernel(*format, precise), part, w[i]->cols);
    }
    const std::int64_t num_x = op == ASSAY_Q_BATCHED ? max_m * w[0]->experts : max_m;
    const Layout l = lay_out(nullptr, tier, needs, w[0]->cols, num_x, kMaxPlanes, w[0]->experts);
    return l.shared_bytes + l.slot_bytes * num_lanes;
}

assay_status run_matmul(const Tier& tier, std::int32_t op, const assay_matmul& args,
                        const assay_stream& stream, assay_error* err) noexcept {
    Call call;
    if (const assay_status s = resolve(tier, op, args, call, err); s != ASSAY_OK) return s;
    if (call.num_slots == 0) return ASSAY_OK;

    // Grouped calls with more rows of x than slots quantize what the slots read.
    const bool by_slot = op == ASSAY_Q_GROUPED && call.num_x_rows > call.num_slots;
    const Needs needs = needs_of(call);
    const Layout layout =
        lay_out(args.workspace, tier, needs, call.k, by_slot ? call.num_slots : call.num_x_rows,
                call.num_planes(), call.num_experts);
    const std::uint64_t smallest = layout.shared_bytes + layout.slot_bytes;
    if (args.workspace == nullptr || args.workspace_bytes < smallest ||
        reinterpret_cast<std::uintptr_t>(args.workspace) % 64 != 0)
        return sdk::fail(err, ASSAY_INVALID,
                         "workspace: %llu bytes, want at least %llu, 64-byte aligned",
                         static_cast<unsigned long long>(args.workspace_bytes),
                         static_cast<unsigned long long>(smallest));

    Work work{tier, call, layout, by_slot, call.num_experts, 0, 0};
    std::int64_t num_tokens = call.num_slots;
    if (op == ASSAY_Q_GROUPED) {
        work.num_active = 0;
        for (std::int64_t e = 0; e < call.num_experts; ++e)
            if (call.slots(e).count > 0)
                layout.active[work.num_active++] = static_cast<std::int32_t>(e);
        if (work.num_active == 0) return ASSAY_OK;
        num_tokens = num_blocks(call.num_slots, work.num_active);
    }

    const std::int64_t num_slots =
        static_cast<std::int64_t>((args.workspace_bytes - layout.shared_bytes) / layout.slot_bytes);
    const std::int64_t width =
        std::max<std::int64_t>(1, stream.lanes != nullptr ? stream.lanes->width : 1);
    std::int64_t num_workers = std::min(width, num_slots);
    std::int64_t num_rows = 0;
    for (int i = 0; i < args.num_weights; ++i) num_rows += args.w[i]->rows * work.num_active;
    if (num_rows * num_tokens < kMinParallelOps / call.k) num_workers = 1;
    const std::int64_t wanted = num_blocks(num_rows, num_workers * kTasksPerLane);
    work.task_rows = std::clamp<std::int64_t>((wanted + kTileRows - 1) / kTileRows * kTileRows,
                                              kTileRows, kMaxTaskRows);
    for (int i = 0; i < call.num_outputs(); ++i)
        work.tasks_per_expert += num_blocks(args.w[i]->rows, work.task_rows);
    num_workers = std::min(num_workers, work.num_tasks());

    if (layout.x.data != nullptr)
        quantize_rows(tier, call, layout.x, by_slot, num_workers > 1 ? stream.lanes : nullptr);
    sdk::parallel_for(stream.lanes, num_workers, [&work](std::uint32_t worker, std::uint32_t) {
        const Slot slot = slot_at(work.layout, worker);
        for (;;) {
            const std::int64_t task = work.next_task.fetch_add(1, std::memory_order_relaxed);
            if (task >= work.num_tasks()) return;
            run_task(work, slot, task);
        }
    });
    return ASSAY_OK;
}

}  // namespace ggml
