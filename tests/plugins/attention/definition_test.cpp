// Every image against sdk/reference, over the table of cases, with fresh inputs in each run.

#include "backends.hpp"
#include "cases.hpp"
#include "world.hpp"

#include <algorithm>
#include <random>

namespace attention_test {
namespace {

/// Runs one row of the table and compares every query.
void check_case(const Backend& backend, const LayerCase& layer, const BatchCase& c, unsigned seed) {
    std::mt19937 rng{seed};
    std::vector<std::int64_t> lengths;
    std::vector<Chunk> prefix, chunks;
    for (std::size_t i = 0; i < c.q_len.size() && c.kv_len[i] >= 0; ++i) {
        const auto s = static_cast<std::int64_t>(i);
        lengths.push_back(c.kv_len[i]);
        prefix.push_back({s, c.kv_len[i] - c.q_len[i]});
        chunks.push_back({s, c.q_len[i]});
    }
    Problem problem = random_problem(layer.layer, lengths, backend.kv_dtype, rng);
    if (c.shared_prefix) {
        const auto copy_page = [&](std::vector<float> Tokens::*member, std::int64_t width) {
            std::copy_n((problem.sequences[0].*member).begin(), c.page_tokens * width,
                        (problem.sequences[1].*member).begin());
        };
        copy_page(&Tokens::k, problem.kv_heads() * problem.key_dim());
        if (!problem.is_mla()) copy_page(&Tokens::v, problem.kv_heads() * problem.value_dim());
        if (problem.has_index()) copy_page(&Tokens::index_k, layer.layer.index_head_dim);
    }
    World world{backend, problem, c.page_tokens, 2, c.shared_prefix ? 1 : 0, seed};
    world.fill(prefix);
    const std::vector<Row> rows = world.run(chunks);

    std::size_t row = 0;
    for (const Chunk& chunk : chunks) {
        const std::int64_t kv_len = lengths[static_cast<std::size_t>(chunk.sequence)];
        const std::vector<Row> got(rows.begin() + static_cast<std::ptrdiff_t>(row),
                                   rows.begin() + static_cast<std::ptrdiff_t>(row) + chunk.q_len);
        row += got.size();
        std::vector<std::vector<std::int32_t>> selection;
        if (problem.is_sparse())
            for (std::size_t j = 0; j < got.size(); ++j) {
                expect_selection(problem, chunk.sequence,
                                 kv_len - chunk.q_len + static_cast<std::int64_t>(j),
                                 got[j].positions, std::string_view{backend.image} == "reference");
                selection.push_back(got[j].positions);
            }
        expect_close(got, defined(problem, chunk.sequence, chunk.q_len, kv_len, selection),
                     error_bound(problem, chunk.sequence, backend),
                     "sequence " + std::to_string(chunk.sequence));
    }
}

class AttentionDefinition : public testing::TestWithParam<std::tuple<Backend, LayerCase>> {};

TEST_P(AttentionDefinition, HoldsForEveryBatch) {
    const auto& [backend, layer] = GetParam();
    SKIP_UNLESS_SERVED(backend, layer.layer);
    for (const BatchCase& c : kBatches) {
        const unsigned seed = std::random_device{}();
        SCOPED_TRACE(testing::Message() << c.name << ", seed " << seed);
        check_case(backend, layer, c, seed);
    }
}

INSTANTIATE_TEST_SUITE_P(Images, AttentionDefinition,
                         testing::Combine(testing::ValuesIn(backends()),
                                          testing::ValuesIn(kLayers)),
                         [](const auto& param) {
                             return std::get<0>(param.param).name() + "_" +
                                    std::get<1>(param.param).name;
                         });

}  // namespace
}  // namespace attention_test
