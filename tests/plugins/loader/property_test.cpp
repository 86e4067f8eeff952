// What must hold for any bytes: no crash, no read outside, memory in proportion to the file. Run
// under the address sanitizer these find what examples do not.

#include "plugins/loader/gguf/conventions.hpp"
#include "plugins/loader/gguf/metadata.hpp"
#include "support.hpp"
#include "tests/support/gguf_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using test_support::GgufWriter;

/// One file with every kind of entry, so that a change anywhere meets some code.
std::string varied_file() {
    GgufWriter w;
    w.string("general.architecture", "llama")
        .alignment(16)
        .value("llama.block_count", std::uint32_t{2})
        .value("llama.attention.head_count", std::uint64_t{4})
        .array<std::int32_t>("llama.attention.head_count_kv", {2, 1})
        .value("llama.rope.freq_base", 1e4f)
        .value("d", -2.5)
        .value("flag", true)
        .value("i8", std::int8_t{-3})
        .value("u16", std::uint16_t{65535})
        .strings("tokenizer.ggml.tokens", {"<s>", "", "a", "ab", "b"})
        .array<float>("tokenizer.ggml.scores", {0, -1, -2, -3, -4})
        .array<std::int32_t>("tokenizer.ggml.token_type", {3, 1, 1, 1, 1})
        .strings("tokenizer.ggml.merges", {"a b", "b a"})
        .value("tokenizer.ggml.bos_token_id", std::uint32_t{0})
        .array<std::uint8_t>("tokenizer.ggml.precompiled_charsmap", {4, 0, 0, 0, 1, 2, 3, 4, 0})
        .array<bool>("flags", {true, false})
        .tensor(
            {.name = "token_embd.weight", .ne = {32, 5}, .type = 8, .data = std::string(170, 'q')})
        .tensor({.name = "blk.0.x", .ne = {3}, .type = 30, .data = std::string(6, 'x')})
        .tensor({.name = "blk.1.y", .ne = {2, 2, 2, 2}, .type = 0, .data = std::string(64, 'y')});
    return w.bytes();
}

/// Parses a copy that ends where its allocation ends, so that a sanitizer sees one byte too far.
void replay(const std::string& file) {
    const auto exact = std::make_unique<std::uint8_t[]>(file.size());
    std::memcpy(exact.get(), file.data(), file.size());
    ASSERT_EQ(LLVMFuzzerTestOneInput(exact.get(), file.size()), 0);
}

TEST(GgufProperty, EveryPrefixIsRefused) {
    const std::string whole = varied_file();
    ASSERT_EQ(loader_test::parse_refusal(whole), "");
    gguf::check_conventions(loader_test::parse(whole), "whole");
    const std::uint64_t end = gguf::content_end(loader_test::parse(whole));
    for (std::size_t n = 0; n < end; ++n) {
        const std::string prefix = whole.substr(0, n);
        const std::string words = loader_test::parse_refusal(prefix);
        ASSERT_NE(words, "") << "a prefix of " << n << " bytes was accepted";
        ASSERT_NE(words.find("truncated"), std::string::npos) << n << " bytes: " << words;
        replay(prefix);
    }
}

TEST(GgufProperty, ChangedBytesNeverBreakTheParser) {
    const auto seed = std::random_device{}();
    std::cout << "seed " << seed << std::endl;  // now: a crash leaves no trace of a test
    std::mt19937 rng{seed};
    const std::string whole = varied_file();
    constexpr std::uint64_t kNasty[] = {0,          1,          7,
                                        0x7f,       0xff,       0x7fffffff,
                                        0x80000000, 0xffffffff, 0x7fffffffffffffff,
                                        1ull << 63, UINT64_MAX, UINT64_MAX - 31};
    int accepted = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string file = whole;
        const int changes = 1 + static_cast<int>(rng() % 3);
        for (int c = 0; c < changes; ++c) {
            const std::size_t at = rng() % file.size();
            switch (rng() % 4) {
                case 0:
                    file[at] = static_cast<char>(rng());
                    break;
                case 1:
                    file[at] = static_cast<char>(file[at] ^ (1 << rng() % 8));
                    break;
                case 2: {
                    const std::uint64_t value = kNasty[rng() % std::size(kNasty)];
                    std::memcpy(file.data() + at, &value,
                                std::min<std::size_t>(8, file.size() - at));
                    break;
                }
                default:
                    file.erase(at, 1 + rng() % 16);
                    break;
            }
            if (file.empty()) file = whole;
        }
        replay(file);
        accepted += loader_test::parse_refusal(file).empty();
    }
    // The changes must reach both outcomes, else this test looks at nothing.
    EXPECT_GT(accepted, 1000);
    EXPECT_LT(accepted, 19'000);
}

TEST(GgufProperty, WhatWasWrittenIsRead) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng{seed};
    struct Expected {
        std::string name;
        std::vector<std::uint64_t> ne;
        std::uint32_t type;
        std::string data;
    };
    constexpr std::uint32_t kTypes[] = {0, 1, 8, 12, 20, 24, 28, 30, 39, 40, 41};
    for (int round = 0; round < 200; ++round) {
        GgufWriter w{2 + static_cast<std::uint32_t>(rng() % 2)};
        if (rng() % 2 == 0) w.alignment(8u << rng() % 6);
        std::vector<std::int64_t> numbers;
        const std::size_t num_values = rng() % 20;
        for (std::size_t i = 0; i < num_values; ++i) {
            numbers.push_back(static_cast<std::int64_t>(rng()) >> rng() % 63);
            w.value("number." + std::to_string(i), numbers.back());
        }
        std::vector<Expected> tensors;
        const std::size_t num_tensors = rng() % 12;
        for (std::size_t i = 0; i < num_tensors; ++i) {
            Expected t{"t." + std::to_string(i), {}, kTypes[rng() % std::size(kTypes)], {}};
            const gguf::TensorType& type = *gguf::find_type(t.type);
            std::uint64_t blocks = 1 + rng() % 3;
            t.ne.push_back(blocks * type.block_elements);
            const std::size_t num_outer = rng() % 4;
            for (std::size_t d = 0; d < num_outer; ++d) {
                t.ne.push_back(1 + rng() % 5);
                blocks *= t.ne.back();
            }
            for (std::uint64_t b = 0; b < blocks * type.block_bytes; ++b)
                t.data += static_cast<char>(rng());
            w.tensor({.name = t.name, .ne = t.ne, .type = t.type, .data = t.data});
            tensors.push_back(std::move(t));
        }
        const std::string file = w.bytes();
        const gguf::Header header = loader_test::parse(file);
        for (std::size_t i = 0; i < numbers.size(); ++i)
            EXPECT_EQ(gguf::int_item(*header.find("number." + std::to_string(i))), numbers[i]);
        ASSERT_EQ(header.tensors.size(), tensors.size());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const gguf::TensorInfo& found = header.tensors[i];
            EXPECT_EQ(found.name, tensors[i].name);
            EXPECT_EQ(found.rank, tensors[i].ne.size());
            for (std::uint32_t d = 0; d < found.rank; ++d) EXPECT_EQ(found.ne[d], tensors[i].ne[d]);
            EXPECT_EQ(file.substr(found.offset, found.bytes), tensors[i].data);
        }
    }
}

}  // namespace
