#pragma once

// attention/1 of the image: the wrapped plugin with one call, or one parameter, changed.

#include "tools/faults/fault.hpp"
#include "tools/faults/healthy.hpp"

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace faults {

struct RunCall;
struct IndexCall;

/// One row of the table.
struct AttentionFault {
    const char* id;
    const char* what;
    /// Makes the layer that a second, wrong instance is created with.
    void (*alter)(assay_attn_layer& layer) = nullptr;
    assay_status (*run)(RunCall& call) =
        nullptr;  ///< with `alter` and without this: the wrong instance's
    assay_status (*append)(RunCall& call) = nullptr;
    assay_status (*index)(IndexCall& call) = nullptr;
};

/// The base is the wrapped plugin's table.
struct AttentionInstance : assay_attention {
    explicit AttentionInstance(Options o)
        : assay_attention{*faults::healthy().attention}, options{std::move(o)}, trigger{options} {}

    void* self = nullptr;   // of the wrapped plugin
    void* wrong = nullptr;  // another of it, for altered layers
    const AttentionFault* fault = nullptr;
    Options options;
    Trigger trigger;
    std::vector<assay_attn_layer> layers;
    std::int32_t page_tokens = 0;
    std::atomic<std::uint64_t> num_runs{0};
    std::atomic<std::int32_t> last_phase{0};
    std::atomic<std::int64_t> decode_steps{0};  // since the last prefill
};

/// One append or run, to be changed and done.
struct RunCall {
    AttentionInstance& in;
    std::uint32_t layer;
    assay_attn_args args;
    const assay_stream* stream;
    assay_error* err;

    [[nodiscard]] const assay_attn_batch& batch() const { return *args.batch; }
    [[nodiscard]] const assay_attn_layer& shape() const { return in.layers[layer]; }
    assay_status healthy() const { return in.run(in.self, layer, &args, stream, err); }
    assay_status wrong() const { return in.run(in.wrong, layer, &args, stream, err); }
    assay_status store() const { return in.append(in.self, layer, &args, stream, err); }
    [[nodiscard]] std::int64_t heads() const { return args.out.shape[1]; }
    [[nodiscard]] std::int64_t width() const { return args.out.shape[2]; }
    [[nodiscard]] float* out(std::int64_t row, std::int64_t head) const {
        return sdk::at<float>(args.out, row, head);
    }
};

struct IndexCall {
    AttentionInstance& in;
    std::uint32_t layer;
    assay_attn_index_args args;
    const assay_stream* stream;
    assay_error* err;

    assay_status healthy() const { return in.index(in.self, layer, &args, stream, err); }
    [[nodiscard]] std::int32_t* slots(std::int64_t row) const {
        return sdk::at<std::int32_t>(args.topk_slots, row);
    }
    [[nodiscard]] std::int64_t topk() const { return args.topk_slots.shape[1]; }
};

/// A batch whose arrays may be changed.
class BatchCopy {
public:
    explicit BatchCopy(const assay_attn_batch& batch);
    [[nodiscard]] const assay_attn_batch* get();

    std::vector<std::int32_t> cu_q, kv_len, block_table, slot_map;
    assay_attn_batch batch;
};

/// Calls visit(sequence, row, position) for each query of a batch.
template <class Visit>
void for_each_query(const assay_attn_batch& batch, Visit&& visit) {
    for (std::int32_t i = 0; i < batch.num_seqs; ++i)
        for (std::int32_t row = batch.cu_q[i]; row < batch.cu_q[i + 1]; ++row)
            visit(i, row, batch.kv_len[i] - batch.cu_q[i + 1] + row);
}

/// The row of the table that a configuration names; null: healthy. Throws sdk::Error.
[[nodiscard]] const AttentionFault* find_attention_fault(const std::string& id);

}  // namespace faults
