#pragma once

// A small engine around one layer: sequences with random tokens, a pool of pages, and steps that
// append, select and attend as the host does. Everything that a correct image does not touch is
// poisoned with NaN and compared afterwards.

#include "image.hpp"
#include "tests/support/lanes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace attention_test {

/// The tokens of one sequence: inputs at every position, so that any chunking can be run.
struct Tokens {
    std::int64_t length = 0;
    std::vector<float> q, k, v;  // [length, heads * dim]
    std::vector<float> index_q, index_k, index_weight;
};

/// The layer and its inputs.
struct Problem {
    assay_attn_layer layer;
    std::vector<Tokens> sequences;
    std::vector<float> sinks;  // [Hq] when the layer has them

    [[nodiscard]] bool is_mla() const { return layer.attn_class != ASSAY_ATTN_GQA; }
    [[nodiscard]] bool is_sparse() const { return layer.attn_class == ASSAY_ATTN_MLA_DSA; }
    [[nodiscard]] bool has_index() const { return layer.index_role == ASSAY_INDEX_FULL; }
    [[nodiscard]] std::int64_t kv_heads() const { return is_mla() ? 1 : layer.num_kv_heads; }
    [[nodiscard]] std::int64_t key_dim() const {
        return is_mla() ? layer.kv_lora_rank + layer.qk_rope_head_dim : layer.head_dim;
    }
    [[nodiscard]] std::int64_t value_dim() const {
        return is_mla() ? layer.kv_lora_rank : layer.v_head_dim;
    }
};

/// Fresh random inputs; queries, keys and values are representable in the cache's dtype, so that
/// storing or narrowing them is exact and the definition sees the same numbers.
Problem random_problem(const assay_attn_layer& layer, const std::vector<std::int64_t>& lengths,
                       assay_dtype kv_dtype, std::mt19937& rng);

/// What a query gave.
struct Row {
    std::vector<float> out;               // [Hq, Dv]
    std::vector<float> lse;               // [Hq]
    std::vector<std::int32_t> positions;  // the selection, in the order of the row (sparse)
    bool operator==(const Row&) const = default;
};

struct Chunk {
    std::int64_t sequence;
    std::int64_t q_len;
};

class World {
public:
    /// @param num_shared_pages  sequences 0 and 1 hold the same first pages; their tokens there
    /// must
    ///                          be equal
    World(const Backend& backend, const Problem& problem, std::int64_t page_tokens,
          std::uint32_t num_lanes = 1, std::int64_t num_shared_pages = 0, std::uint32_t seed = 1);

    /// Stores the next q_len tokens of each sequence without asking anything.
    void fill(const std::vector<Chunk>& chunks) { step(chunks, false); }
    /// One step. Returns a row for each query, sequence after sequence.
    std::vector<Row> run(const std::vector<Chunk>& chunks) { return step(chunks, true); }

    /// Replaces the selection that run() hands on, for tests of sparse attention alone: row t of
    /// the step gets selections[t] as positions.
    void set_selection(std::vector<std::vector<std::int32_t>> selections) {
        selections_ = std::move(selections);
    }

    [[nodiscard]] Instance& instance() { return instance_; }
    [[nodiscard]] const assay_stream& stream() const { return stream_; }
    [[nodiscard]] std::vector<void*> planes();
    [[nodiscard]] std::int32_t slot(std::int64_t sequence, std::int64_t position) const;
    /// The address of a host array where the image works, with its contents of now. back() waits,
    /// copies all of them back and forgets them.
    void* there(const void* host, std::size_t bytes);
    template <class T>
    T* there(const std::vector<T>& host) {
        return static_cast<T*>(there(host.data(), host.size() * sizeof(T)));
    }
    void back();

private:
    struct Batch;  // the arrays of one step
    std::vector<Row> step(const std::vector<Chunk>& chunks, bool is_run);
    assay_attn_batch batch_there(const Batch& b);
    template <class P>
    assay_tensor tensor_there(const P& padded) {
        assay_tensor t = padded.tensor;
        t.data = there(padded.data);
        return t;
    }
    void append(Batch& b);
    void index(Batch& b);
    void attend(Batch& b);
    std::vector<Row> collect(const Batch& b);

    const Problem& problem_;
    Instance instance_;
    std::int64_t page_tokens_, max_blocks_, num_shared_pages_;
    support::TestLanes lanes_;
    assay_stream stream_{};
#ifdef ASSAY_TEST_CUDA
    std::unique_ptr<Space> space_;  // null: host memory
#endif
    std::uint64_t plan_bytes_ = 0, workspace_bytes_ = 0;
    std::vector<std::vector<unsigned char>> pages_;  // one per plane
    std::vector<std::vector<std::int32_t>> blocks_;  // one table per sequence
    std::vector<std::int64_t> cached_;               // tokens of each sequence in the pages
    std::vector<std::vector<std::int32_t>> selections_;
};

/// The definition (sdk/reference) for the last q_len of the first kv_len tokens of a sequence.
/// @param selection  per query the positions it may see; empty: dense
std::vector<Row> defined(const Problem& problem, std::int64_t sequence, std::int64_t q_len,
                         std::int64_t kv_len,
                         const std::vector<std::vector<std::int32_t>>& selection = {});

/// The largest error that f32 arithmetic may leave in an output, from the inputs; see world.cpp.
struct Bound {
    double out, lse;
};
Bound error_bound(const Problem& problem, std::int64_t sequence, const Backend& backend);

/// Compares row by row; reports the worst element with its place and both values.
void expect_close(const std::vector<Row>& got, const std::vector<Row>& want, const Bound& bound,
                  const std::string& what);

/// The selection of a query must be the best by the definition's scores; two sets may differ only
/// in positions whose scores are closer than the rounding of f32.
void expect_selection(const Problem& problem, std::int64_t sequence, std::int64_t position,
                      const std::vector<std::int32_t>& got, bool is_exact);

}  // namespace attention_test
