// The forms of MLA's up-projection: one made of the other, and held to it.

#include "daemon/model/kv_b.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace model {
namespace {

constexpr std::byte kSentinel{0xA5};

struct Forms {
    KvbShape shape;
    std::vector<float> kv_b, k_b, v_b;
};

/// Both forms, each element placed by the definition (architectures.md 2.6).
Forms forms(KvbShape s, unsigned seed) {
    Forms f{s, {}, {}, {}};
    std::mt19937 rng{seed};
    std::normal_distribution<float> normal;
    f.kv_b.resize(static_cast<std::size_t>(s.rows() * s.latent));
    for (float& x : f.kv_b) x = normal(rng);
    f.k_b.resize(static_cast<std::size_t>(s.heads * s.latent * s.nope));
    f.v_b.resize(static_cast<std::size_t>(s.heads * s.v * s.latent));
    for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t l = 0; l < s.latent; ++l) {
            const auto at = [&](std::int64_t row) {
                return f.kv_b[static_cast<std::size_t>((h * (s.nope + s.v) + row) * s.latent + l)];
            };
            for (std::int64_t n = 0; n < s.nope; ++n)
                f.k_b[static_cast<std::size_t>((h * s.latent + l) * s.nope + n)] = at(n);
            for (std::int64_t v = 0; v < s.v; ++v)
                f.v_b[static_cast<std::size_t>((h * s.v + v) * s.latent + l)] = at(s.nope + v);
        }
    return f;
}

const KvbShape kShapes[] = {{1, 1, 1, 1}, {3, 5, 7, 11}, {2, 8, 3, 16}, {5, 2, 9, 1}, {4, 32, 32, 64}};

/// What `make` writes for `count` elements, and nothing beyond them.
template <class Element, class Make>
std::vector<Element> made(std::size_t count, Make&& make) {
    std::vector<std::byte> bytes((count + 2) * sizeof(Element), kSentinel);
    make(bytes.data() + sizeof(Element));
    for (std::size_t i = 0; i < sizeof(Element); ++i) {
        EXPECT_EQ(bytes[i], kSentinel) << "before the output";
        EXPECT_EQ(bytes[bytes.size() - 1 - i], kSentinel) << "behind the output";
    }
    std::vector<Element> out(count);
    std::memcpy(out.data(), bytes.data() + sizeof(Element), count * sizeof(Element));
    return out;
}

TEST(KvB, KeysAreTransposedAsDefined) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    for (const KvbShape& s : kShapes) {
        SCOPED_TRACE(testing::Message() << s.heads << " heads, " << s.nope << " + " << s.v << ", latent " << s.latent);
        const Forms f = forms(s, seed);
        const auto* stored = reinterpret_cast<const std::byte*>(f.kv_b.data());
        EXPECT_EQ(made<float>(f.k_b.size(), [&](std::byte* out) { transpose_keys(s, 4, stored, out); }), f.k_b);
    }
}

TEST(KvB, SixteenBitElementsMoveWhole) {
    const KvbShape s{3, 5, 7, 11};
    std::vector<std::uint16_t> kv_b(static_cast<std::size_t>(s.rows() * s.latent));
    for (std::size_t i = 0; i < kv_b.size(); ++i) kv_b[i] = static_cast<std::uint16_t>(i * 257);
    const auto keys = made<std::uint16_t>(3 * 11 * 5, [&](std::byte* out) {
        transpose_keys(s, 2, reinterpret_cast<const std::byte*>(kv_b.data()), out);
    });
    for (std::size_t h = 0; h < 3; ++h)
        for (std::size_t l = 0; l < 11; ++l)
            for (std::size_t n = 0; n < 5; ++n)
                ASSERT_EQ(keys[(h * 11 + l) * 5 + n], kv_b[(h * 12 + n) * 11 + l]);
}

TEST(KvB, FormatsOfHeldKeys) {
    for (const char* format : {"f32", "f16", "bf16"}) EXPECT_EQ(split_key_format(format), format);
    for (const char* format : {"q8_0", "q4_k", "iq4_nl", "mxfp4"}) EXPECT_EQ(split_key_format(format), "f32") << format;
}

double difference(const Forms& f) {
    return compare_kv_b(f.shape, f.kv_b.data(), f.k_b.data(), f.v_b.data()).relative;
}

TEST(KvB, FormsOfOneMatrixDoNotDiffer) {
    for (const KvbShape& s : kShapes) EXPECT_EQ(difference(forms(s, 1)), 0.0);
}

TEST(KvB, RoundingIsWithinTheBound) {
    Forms f = forms({4, 32, 32, 64}, 2);
    for (float& x : f.k_b) x *= 1.004F;
    EXPECT_GT(difference(f), 1e-3);
    EXPECT_LT(difference(f), kv_b_bound("bf16", "f16", "f32"));
    for (float& x : f.v_b) x *= 1.3F;  // the error of a very coarse format
    EXPECT_GT(difference(f), kv_b_bound("bf16", "f16", "f32"));
    EXPECT_LT(difference(f), kv_b_bound("iq1_s", "q8_0", "q8_0"));
}

TEST(KvB, WrongConstructionsAreBeyondEveryBound) {
    const KvbShape s{4, 32, 32, 64};
    const double bound = kv_b_bound("iq1_s", "iq1_s", "iq1_s");

    Forms swapped = forms(s, 3);  // heads 0 and 1
    std::swap_ranges(swapped.v_b.begin(), swapped.v_b.begin() + 32 * 64, swapped.v_b.begin() + 32 * 64);
    EXPECT_GT(difference(swapped), bound);

    Forms straight = forms(s, 4);  // keys not transposed
    for (std::size_t h = 0; h < 4; ++h)
        std::copy_n(straight.kv_b.begin() + static_cast<std::ptrdiff_t>(h * 64 * 64), 32 * 64,
                    straight.k_b.begin() + static_cast<std::ptrdiff_t>(h * 64 * 32));
    EXPECT_GT(difference(straight), bound);

    Forms stacked = forms(s, 5);  // all keys, then all values, instead of head by head
    std::vector<float> rows;
    for (int part = 0; part < 2; ++part)
        for (std::ptrdiff_t h = 0; h < 4; ++h) {
            const auto begin = stacked.kv_b.begin() + (h * 64 + part * 32) * 64;
            rows.insert(rows.end(), begin, begin + 32 * 64);
        }
    stacked.kv_b = rows;
    EXPECT_GT(difference(stacked), bound);

    Forms one = forms(s, 6);  // a single head
    std::fill(one.k_b.begin() + 3 * 64 * 32, one.k_b.end(), 0.0F);
    const KvbDifference worst = compare_kv_b(s, one.kv_b.data(), one.k_b.data(), one.v_b.data());
    EXPECT_GT(worst.relative, bound);
    EXPECT_EQ(worst.head, 3);
    EXPECT_STREQ(worst.part, "keys");
}

TEST(KvB, NotANumberIsNeverWithinABound) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        Forms f = forms({4, 32, 32, 64}, 7);
        f.v_b[40 * 64] = bad;  // of head 1
        const KvbDifference worst = compare_kv_b(f.shape, f.kv_b.data(), f.k_b.data(), f.v_b.data());
        EXPECT_FALSE(worst.relative <= 0.5);
        EXPECT_EQ(worst.head, 1);
        EXPECT_STREQ(worst.part, "values");
    }
    Forms zero = forms({2, 4, 4, 8}, 8);
    std::fill(zero.kv_b.begin(), zero.kv_b.end(), 0.0F);
    EXPECT_FALSE(difference(zero) <= 0.5) << "one side alone is zero";
}

}  // namespace
}  // namespace model
