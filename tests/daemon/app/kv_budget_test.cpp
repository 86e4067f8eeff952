#include "daemon/app/kv_budget.hpp"

#include <gtest/gtest.h>

#include "daemon/base/error.hpp"

namespace app {
namespace {

constexpr std::uint64_t kMiB = 1U << 20U;

/// A block of 32 tokens takes 1 MiB; 1 GiB is free; 4 sequences of 1,000 tokens.
KvNeeds needs() {
    KvNeeds n;
    n.block_bytes = kMiB;
    n.block_tokens = 32;
    n.free_bytes = 1024 * kMiB;
    n.context_length = 1000;
    n.max_seqs = 4;
    return n;
}

std::string complaint(const config::Kv& kv, const KvNeeds& n) {
    try {
        return "blocks: " + std::to_string(num_kv_blocks(kv, n));
    } catch (const base::ConfigError& e) {
        return e.what();
    }
}

TEST(KvBudget, ByFractionAndNoMoreThanCanBeUsed) {
    config::Kv kv;
    kv.memory_fraction = 0.1;
    EXPECT_EQ(num_kv_blocks(kv, needs()), 102);  // of 1024
    kv.memory_fraction = 0.5;
    EXPECT_EQ(num_kv_blocks(kv, needs()), 4 * 32);  // 1,000 tokens are 32 blocks
}

TEST(KvBudget, WhatIsStatedIsWhatThereWillBe) {
    config::Kv kv;
    kv.max_tokens = 16'001;  // beyond any use, and beyond the fraction
    EXPECT_EQ(num_kv_blocks(kv, needs()), 501);
    kv.max_tokens = 0;
    kv.memory_bytes = static_cast<std::int64_t>(700 * kMiB);
    EXPECT_EQ(num_kv_blocks(kv, needs()), 700);
}

TEST(KvBudget, WhatDoesNotFitIsRefusedWithBothFigures) {
    config::Kv kv;
    kv.max_tokens = 64 * 1024;  // 2 GiB
    EXPECT_EQ(complaint(kv, needs()),
              "kv.max_tokens: 65536 tokens take 2.00 GiB, and 1.00 GiB are free beside the weights");
    kv.max_tokens = 1'000'000'000'000;  // no arithmetic overflows
    EXPECT_NE(complaint(kv, needs()).find("kv.max_tokens: 1000000000000 tokens take"), std::string::npos);
    kv.max_tokens = 0;
    kv.memory_bytes = static_cast<std::int64_t>(2048 * kMiB);
    EXPECT_NE(complaint(kv, needs()).find("kv.memory_bytes: 2147483648 bytes take 2.00 GiB, and 1.00 GiB"),
              std::string::npos);
    kv.memory_bytes = 1000;
    EXPECT_NE(complaint(kv, needs()).find("kv.memory_bytes: a block of 32 tokens takes 1.0 MiB"), std::string::npos);
    kv.memory_bytes = 0;
    KvNeeds none = needs();
    none.free_bytes = 0;
    EXPECT_NE(complaint(kv, none).find("kv.memory_fraction: a block"), std::string::npos) << complaint(kv, none);
    KvNeeds many = needs();
    many.min_tokens = 1'000'000;
    EXPECT_NE(complaint(kv, many).find("1000000 tokens take"), std::string::npos);
}

TEST(KvBudget, SlotsStayThirtyTwoBitNumbers) {
    config::Kv kv;
    KvNeeds n = needs();
    n.block_bytes = 1;
    n.free_bytes = std::uint64_t{1} << 40U;
    kv.max_tokens = std::int64_t{1} << 33;
    EXPECT_NE(complaint(kv, n).find("want at most"), std::string::npos);
}

}  // namespace
}  // namespace app
