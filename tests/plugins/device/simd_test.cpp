// The vector functions against double, on the width this test is compiled for: the arithmetic has
// no fused multiply-add, so it is the same on every width (VectorTiers checks that it is).

#include "plugins/device/cpu/simd.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace {

/// Distance of `got` from the exact `want`, in units of the last place of want in f32.
double ulps(float got, double want) {
    const double magnitude = std::max(std::abs(want), double{std::numeric_limits<float>::min()});
    return std::abs(double{got} - want) / std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

template <class F>
float lane0(F f, float x) {
    float lane[cpu::kWidth];
    cpu::store(lane, f(cpu::splat(x)));
    return lane[0];
}

float exp_of(float x) {
    return lane0([](cpu::Vec v) { return cpu::exp(v); }, x);
}
float tanh_of(float x) {
    return lane0([](cpu::Vec v) { return cpu::tanh(v); }, x);
}

/// Every 4001st float (a prime, so that all exponents and both halves of fractions come by).
template <class Visit>
void for_floats(Visit visit) {
    for (std::uint64_t u = 0; u < (std::uint64_t{1} << 32); u += 4001)
        visit(std::bit_cast<float>(static_cast<std::uint32_t>(u)));
}

TEST(SimdExp, IsWithinTwoUlpOfDouble) {
    double worst = 0;
    float at = 0;
    for_floats([&](float x) {
        if (!(x > -87.0f && x < 88.7f)) return;
        const double error = ulps(exp_of(x), std::exp(double{x}));
        if (!(error <= worst)) worst = error, at = x;
    });
    EXPECT_LE(worst, 2.0) << "at " << at;
}

TEST(SimdExp, OverflowsUnderflowsAndKeepsNaN) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    EXPECT_EQ(exp_of(0.0f), 1.0f);
    EXPECT_EQ(exp_of(kInf), kInf);
    EXPECT_EQ(exp_of(89.0f), kInf);
    EXPECT_EQ(exp_of(1e30f), kInf);
    EXPECT_EQ(exp_of(-kInf), 0.0f);
    EXPECT_EQ(exp_of(-200.0f), 0.0f);
    EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
    EXPECT_NEAR(exp_of(-95.0f) / std::exp(-95.0), 1.0, 1e-3) << "a subnormal";
}

TEST(SimdTanh, IsWithinFourUlpOfDouble) {
    double worst = 0;
    float at = 0;
    for_floats([&](float x) {
        if (std::isnan(x)) return;
        const double error = ulps(tanh_of(x), std::tanh(double{x}));
        if (!(error <= worst)) worst = error, at = x;
    });
    EXPECT_LE(worst, 4.0) << "at " << at;
    EXPECT_TRUE(std::isnan(tanh_of(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
