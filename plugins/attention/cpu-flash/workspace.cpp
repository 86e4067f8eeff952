#include "workspace.hpp"

#include <string>

namespace attention::flash {

void prepare_sizes(Instance& in) {
    for (const Layer& layer : in.layers) {
        in.key_pad = std::max(in.key_pad, padded(layer.key_dim));
        in.value_pad = std::max(in.value_pad, padded(layer.value_dim));
        in.max_rows = std::max({in.max_rows, block_rows(layer), kTogetherRows});
        in.topk = std::max(in.topk, layer.index_topk);
        in.index_heads = std::max(in.index_heads, layer.index_n_heads);
        in.index_pad = std::max(in.index_pad, padded(layer.index_head_dim));
    }
}

std::int64_t workspace_bytes(const Instance& in) {
    Carver carver{nullptr};
    take_workspace(carver, in);
    return carver.used();
}

Workspace open_workspace(const Instance& in, const assay_attn_batch& batch, void* base,
                         std::uint64_t bytes) {
    const auto more = [](const char* what, std::int64_t found, std::int64_t named) {
        throw sdk::Error{ASSAY_INVALID, std::string{what} + " is " + std::to_string(found) +
                                            ", sizes() was told at most " + std::to_string(named)};
    };
    const std::int64_t tokens = end_row(batch) - first_row(batch);
    if (batch.num_seqs > in.limits.max_seqs) more("num_seqs", batch.num_seqs, in.limits.max_seqs);
    if (tokens > in.limits.max_tokens) more("the number of tokens", tokens, in.limits.max_tokens);
    for (std::int32_t i = 0; i < batch.num_seqs; ++i)
        if (batch.kv_len[i] > in.limits.max_kv_len)
            more("kv_len", batch.kv_len[i], in.limits.max_kv_len);
    const std::int64_t needed = workspace_bytes(in);
    if (base == nullptr || bytes < static_cast<std::uint64_t>(needed))
        throw sdk::Error{ASSAY_INVALID, "workspace of " + std::to_string(bytes) +
                                            " bytes, needed " + std::to_string(needed)};
    Carver carver{base};
    return take_workspace(carver, in);
}

}  // namespace attention::flash
