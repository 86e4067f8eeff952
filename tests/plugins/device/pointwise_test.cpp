// Every op over rows, held to its definition: fresh inputs, sentinels around and in the outputs,
// strided views, in place, odd widths, no rows; and the same bits whatever the batch, lanes and
// tier.

#include "reference/pointwise.hpp"

#include "cpu_device.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

namespace device_test {
namespace {

namespace ref = sdk::reference;

constexpr float kEps = 1e-5f;
constexpr std::int64_t kHeads = 2;

/// Dense inputs of one case: x and y [rows, n], weight and bias [n], table [rows, 2, half].
struct Inputs {
    std::int64_t rows, n, half;
    std::vector<float> x, y, weight, bias, table;
};

Inputs make_inputs(std::int64_t rows, std::int64_t n, std::uint64_t seed) {
    Rng rng{seed};
    Inputs in{rows, n, std::max<std::int64_t>(1, n / kHeads / 4), {}, {}, {}, {}, {}};
    in.x = normals(rng, rows * n, 2.0f, 0.3f);
    in.y = normals(rng, rows * n, 1.5f);
    in.weight = normals(rng, n, 0.5f, 1.0f);
    in.bias = normals(rng, n);
    std::vector<std::int32_t> pos;
    for (std::int64_t t = 0; t < rows; ++t)
        pos.push_back(static_cast<std::int32_t>(rng() % 100000));
    std::vector<double> inv_freq;
    for (std::int64_t i = 0; i < in.half; ++i)
        inv_freq.push_back(std::pow(1e4, -static_cast<double>(i) / static_cast<double>(in.half)));
    in.table.resize(static_cast<std::size_t>(rows * 2 * in.half));
    ref::rope_table(pos.data(), rows, inv_freq.data(), in.half, 1.1f, in.table.data());
    return in;
}

/// The views an op is called with. `out` may be the same memory as `x`.
struct Views {
    Matrix *x, *y, *out;
    const Inputs* in;
    [[nodiscard]] assay_tensor weight() const {
        return sdk::make_tensor(in->weight.data(), ASSAY_F32, in->n);
    }
    [[nodiscard]] assay_tensor bias() const {
        return sdk::make_tensor(in->bias.data(), ASSAY_F32, in->n);
    }
    [[nodiscard]] assay_tensor table() const {
        return sdk::make_tensor(in->table.data(), ASSAY_F32, in->rows, 2, in->half);
    }
};

struct Op {
    const char* name;
    enum Place { anywhere, only_in_place } place;
    enum Width { any, power_of_two, heads_of_four } width;
    bool writes_y;   // the residual
    float rel, abs;  // of a result of size one; see the comment at each
    std::function<assay_status(const CpuDevice&, const Views&)> run;
    std::function<void(const Inputs&, float* y, float* out)> define;
};

// The roundings between input and output are counted in units of 2^-24 (6e-8), relative to the
// result (rel) or to terms of about the inputs' size that may cancel (abs).
const std::vector<Op>& ops() {
    const auto rope = [](const char* name, std::int32_t style) {
        return Op{name,
                  Op::anywhere,
                  Op::heads_of_four,
                  false,
                  0,
                  2e-6f,  // 3 roundings of terms up to 10
                  [style](const CpuDevice& d, const Views& v) {
                      const assay_tensor x = v.x->heads(kHeads), out = v.out->heads(kHeads);
                      const assay_tensor table = v.table();
                      return d.ops().rope(d.self(), &x, &table, style, &out, d.stream());
                  },
                  [style](const Inputs& in, float*, float* out) {
                      ref::rope(in.x.data(), in.table.data(), style, out, in.rows, kHeads,
                                in.n / kHeads, in.half);
                  }};
    };
    const auto glu = [](const char* name, std::int32_t kind) {
        return Op{name,
                  Op::anywhere,
                  Op::any,
                  false,
                  6e-7f,
                  6e-7f,  // exp 2, then 5; gelu: the exponent
                  [kind](const CpuDevice& d, const Views& v) {
                      const assay_tensor x = v.x->view(), y = v.y->view(), out = v.out->view();
                      return d.ops().glu(d.self(), kind, 1.702f, 3.0f, &x, &y, &out, d.stream());
                  },
                  [kind](const Inputs& in, float*, float* out) {
                      for (std::size_t i = 0; i < in.x.size(); ++i)
                          out[i] = static_cast<float>(ref::glu(kind, double{1.702f}, 3.0,
                                                               double{in.x[i]}, double{in.y[i]}));
                  }};
    };
    static const std::vector<Op> table{
        {"copy", Op::anywhere, Op::any, false, 0, 0,
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), out = v.out->view();
             return d.ops().copy(d.self(), &x, &out, d.stream());
         },
         [](const Inputs& in, float*, float* out) { std::copy(in.x.begin(), in.x.end(), out); }},
        {"rmsnorm", Op::anywhere, Op::any, false, 3e-7f, 0,  // the scale, two products, the mean
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), out = v.out->view(), w = v.weight();
             return d.ops().rmsnorm(d.self(), &x, nullptr, &w, kEps, &out, d.stream());
         },
         [](const Inputs& in, float*, float* out) {
             ref::rmsnorm(in.x.data(), in.weight.data(), out, in.rows, in.n, kEps);
         }},
        {"rmsnorm_no_weight", Op::anywhere, Op::any, false, 3e-7f, 0,
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), out = v.out->view(), none{};
             return d.ops().rmsnorm(d.self(), &x, &none, &none, kEps, &out, d.stream());
         },
         [](const Inputs& in, float*, float* out) {
             ref::rmsnorm(in.x.data(), nullptr, out, in.rows, in.n, kEps);
         }},
        {"rmsnorm_residual", Op::anywhere, Op::any, true, 3e-7f, 0,
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), y = v.y->view(), out = v.out->view();
             const assay_tensor w = v.weight();
             return d.ops().rmsnorm(d.self(), &x, &y, &w, kEps, &out, d.stream());
         },
         [](const Inputs& in, float* y, float* out) {
             ref::add_rmsnorm(in.x.data(), y, in.weight.data(), out, in.rows, in.n, kEps);
         }},
        {"layernorm", Op::anywhere, Op::any, false, 4e-7f, 8e-7f,  // cancels against mean and bias
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), out = v.out->view();
             const assay_tensor w = v.weight(), b = v.bias();
             return d.ops().layernorm(d.self(), &x, &w, &b, kEps, &out, d.stream());
         },
         [](const Inputs& in, float*, float* out) {
             ref::layernorm(in.x.data(), in.weight.data(), in.bias.data(), out, in.rows, in.n,
                            kEps);
         }},
        {"layernorm_no_bias", Op::anywhere, Op::any, false, 4e-7f, 8e-7f,
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), out = v.out->view(), w = v.weight();
             return d.ops().layernorm(d.self(), &x, &w, nullptr, kEps, &out, d.stream());
         },
         [](const Inputs& in, float*, float* out) {
             ref::layernorm(in.x.data(), in.weight.data(), nullptr, out, in.rows, in.n, kEps);
         }},
        rope("rope_norm", ASSAY_ROPE_NORM),
        rope("rope_neox", ASSAY_ROPE_NEOX),
        glu("glu_none", ASSAY_GLU_NONE),
        glu("glu_silu", ASSAY_GLU_SILU),
        glu("glu_gelu_tanh", ASSAY_GLU_GELU_TANH),
        glu("glu_silu_clamp", ASSAY_GLU_SILU_CLAMP),
        {"add", Op::anywhere, Op::any, false, 1.2e-7f, 3e-7f,  // the sum; the product, up to 3
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), y = v.y->view(), out = v.out->view();
             return d.ops().add(d.self(), &x, &y, -0.37f, &out, d.stream());
         },
         [](const Inputs& in, float*, float* out) {
             for (std::size_t i = 0; i < in.x.size(); ++i)
                 out[i] = static_cast<float>(double{in.x[i]} + double{-0.37f} * double{in.y[i]});
         }},
        {"scale", Op::anywhere, Op::any, false, 0, 0,
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), out = v.out->view();
             return d.ops().scale(d.self(), &x, 1.7f, &out, d.stream());
         },
         [](const Inputs& in, float*, float* out) {
             for (std::size_t i = 0; i < in.x.size(); ++i)
                 out[i] = static_cast<float>(double{in.x[i]} * double{1.7f});
         }},
        {"add_bias", Op::only_in_place, Op::any, false, 0, 0,
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), b = v.bias();
             return d.ops().add_bias(d.self(), &x, &b, nullptr, d.stream());
         },
         [](const Inputs& in, float*, float* out) {
             for (std::size_t i = 0; i < in.x.size(); ++i)
                 out[i] = static_cast<float>(double{in.x[i]} +
                                             double{in.bias[i % static_cast<std::size_t>(in.n)]});
         }},
        {"hadamard", Op::anywhere, Op::power_of_two, false, 3e-7f, 4e-6f,  // one rounding a stage
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), out = v.out->view();
             return d.ops().hadamard(d.self(), &x, &out, d.stream());
         },
         [](const Inputs& in, float*, float* out) {
             ref::hadamard(in.x.data(), out, in.rows, in.n);
         }},
        {"softcap", Op::anywhere, Op::any, false, 5e-7f, 0,  // tanh 4, a quotient, a product
         [](const CpuDevice& d, const Views& v) {
             const assay_tensor x = v.x->view(), out = v.out->view();
             return d.ops().softcap(d.self(), &x, 5.0f, &out, d.stream());
         },
         [](const Inputs& in, float*, float* out) {
             for (std::size_t i = 0; i < in.x.size(); ++i)
                 out[i] = static_cast<float>(ref::softcap(double{in.x[i]}, 5.0));
         }},
    };
    return table;
}

bool fits(const Op& op, std::int64_t n) {
    if (op.width == Op::power_of_two) return std::has_single_bit(static_cast<std::uint64_t>(n));
    return op.width == Op::any || n % (4 * kHeads) == 0;
}

struct Results {
    std::vector<float> out, y;
};

Results run(const Op& op, const CpuDevice& device, const Inputs& in, std::int64_t gap,
            bool in_place) {
    Matrix x{in.x, in.rows, in.n, gap}, y{in.y, in.rows, in.n, gap + 3}, out{in.rows, in.n, gap};
    Matrix& to = in_place ? x : out;
    EXPECT_EQ(op.run(device, {&x, &y, &to, &in}), ASSAY_OK);
    EXPECT_EQ(x.first_broken_guard(), -1) << "x";
    EXPECT_EQ(y.first_broken_guard(), -1) << "y";
    EXPECT_EQ(out.first_broken_guard(), -1) << "out";
    EXPECT_TRUE(in_place || same_bits(x.dense(), in.x)) << "x was written";
    EXPECT_TRUE(op.writes_y || same_bits(y.dense(), in.y)) << "y was written";
    return {to.dense(), y.dense()};
}

void expect_close(const Op& op, const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    double worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double bound = op.rel * std::abs(double{want[i]}) + op.abs;
        const double error = std::abs(double{got[i]} - double{want[i]});
        const double excess = got[i] == want[i] ? 0 : error / std::max(bound, 1e-300);
        if (!(excess <= worst)) {  // NaN is worst of all
            worst = std::isnan(excess) ? 1e300 : excess;
            at = i;
        }
    }
    EXPECT_LE(worst, 1.0) << "element " << at << ": got " << got[at] << ", want " << want[at];
}

struct Shape {
    std::int64_t rows, n, gap;
};

constexpr Shape kShapes[] = {
    {0, 64, 0}, {1, 1, 0},   {1, 8, 0},   {4, 7, 1},     {3, 16, 5},   {5, 32, 0},
    {2, 40, 3}, {3, 257, 7}, {2, 512, 0}, {6, 1000, 24}, {1, 4096, 0}, {2, 16421, 8},
};

class EveryOp : public testing::TestWithParam<std::string> {};

TEST_P(EveryOp, AgreesWithItsDefinition) {
    const CpuDevice device{GetParam().c_str(), 3};
    for (const Op& op : ops()) {
        for (const Shape& shape : kShapes) {
            if (!fits(op, shape.n)) continue;
            for (const bool in_place : {false, true}) {
                if (op.place == Op::only_in_place && !in_place) continue;
                const std::uint64_t seed = fresh_seed();
                SCOPED_TRACE(testing::Message()
                             << op.name << " [" << shape.rows << ", " << shape.n << "] gap "
                             << shape.gap << (in_place ? " in place" : "") << " seed " << seed);
                const Inputs in = make_inputs(shape.rows, shape.n, seed);
                std::vector<float> want(in.x.size()), want_y = in.y;
                op.define(in, want_y.data(), want.data());
                const Results got = run(op, device, in, shape.gap, in_place);
                expect_close(op, got.out, want);
                EXPECT_TRUE(same_bits(got.y, want_y)) << "the residual is one rounded sum";
            }
        }
    }
}

TEST_P(EveryOp, GivesTheSameBitsWhateverTheBatchAndTheLanes) {
    const CpuDevice one{GetParam().c_str(), 1}, four{GetParam().c_str(), 4};
    constexpr std::int64_t kRows = 37;
    for (const Op& op : ops()) {
        const std::int64_t n = op.width == Op::power_of_two ? 1024 : 1000;
        const std::uint64_t seed = fresh_seed();
        SCOPED_TRACE(testing::Message() << op.name << " seed " << seed);
        const Inputs in = make_inputs(kRows, n, seed);
        const bool in_place = op.place == Op::only_in_place;
        const Results batch = run(op, one, in, 0, in_place);
        EXPECT_TRUE(same_bits(run(op, four, in, 0, in_place).out, batch.out)) << "lanes";

        for (const std::int64_t row : {std::int64_t{0}, kRows / 2, kRows - 1}) {
            const auto slice = [&](const std::vector<float>& all, std::int64_t width) {
                return std::vector<float>(all.begin() + row * width,
                                          all.begin() + (row + 1) * width);
            };
            const Inputs alone{1,
                               n,
                               in.half,
                               slice(in.x, n),
                               slice(in.y, n),
                               in.weight,
                               in.bias,
                               slice(in.table, 2 * in.half)};
            EXPECT_TRUE(same_bits(run(op, four, alone, 5, in_place).out, slice(batch.out, n)))
                << "row " << row << " alone";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Tiers, EveryOp, testing::ValuesIn(runnable_tiers()),
                         [](const auto& param) { return param.param; });

TEST(VectorTiers, GiveTheSameBitsAsEachOther) {
    const CpuDevice baseline{"baseline", 1};
    std::size_t num_compared = 0;
    for (const std::string& tier : runnable_tiers()) {
        if (tier == "baseline" || tier == "reference") continue;
        const CpuDevice device{tier.c_str(), 1};
        for (const Op& op : ops()) {
            for (const Shape& shape : kShapes) {
                if (!fits(op, shape.n)) continue;
                SCOPED_TRACE(testing::Message() << op.name << ' ' << tier << " n " << shape.n);
                const Inputs in = make_inputs(shape.rows, shape.n, 11);
                const bool in_place = op.place == Op::only_in_place;
                EXPECT_TRUE(same_bits(run(op, device, in, 0, in_place).out,
                                      run(op, baseline, in, 0, in_place).out));
                ++num_compared;
            }
        }
    }
    RecordProperty("compared", static_cast<int>(num_compared));
    EXPECT_EQ(num_compared == 0, runnable_tiers().size() == 2);
}

// ---- identities ------------------------------------------------------------------------------

TEST(Rope, NeoxOfTheDeinterleavedIsTheDeinterleavedNorm) {
    const CpuDevice device;
    Rng rng{fresh_seed()};
    const Inputs in = make_inputs(5, kHeads * 64, rng());
    const std::int64_t dim = 64, half = in.half;  // a partial rotation: the tail keeps its place
    const auto deinterleave = [&](const std::vector<float>& x) {
        std::vector<float> to = x;
        for (std::size_t head = 0; head < x.size(); head += dim)
            for (std::size_t i = 0; i < static_cast<std::size_t>(half); ++i) {
                to[head + i] = x[head + 2 * i];
                to[head + static_cast<std::size_t>(half) + i] = x[head + 2 * i + 1];
            }
        return to;
    };
    const auto rotate = [&](std::vector<float> x, std::int32_t style) {
        const assay_tensor t = sdk::make_tensor(x.data(), ASSAY_F32, in.rows, kHeads, dim);
        const assay_tensor table = sdk::make_tensor(in.table.data(), ASSAY_F32, in.rows, 2, half);
        EXPECT_EQ(device.ops().rope(device.self(), &t, &table, style, &t, device.stream()),
                  ASSAY_OK);
        return x;
    };
    EXPECT_TRUE(same_bits(rotate(deinterleave(in.x), ASSAY_ROPE_NEOX),
                          deinterleave(rotate(in.x, ASSAY_ROPE_NORM))));
    EXPECT_FALSE(same_bits(rotate(in.x, ASSAY_ROPE_NEOX), rotate(in.x, ASSAY_ROPE_NORM)));
}

TEST(Rope, PositionZeroIsTheIdentity) {
    const CpuDevice device;
    const std::int32_t pos[] = {0};
    const double inv_freq[] = {1.0, 0.1};
    float table[4], x[] = {1.5f, -2.0f, 0.25f, 3.0f}, out[4];
    const assay_tensor t = sdk::make_tensor(table, ASSAY_F32, 1, 2, 2);
    ASSERT_EQ(
        device.ops().rope_table(device.self(), pos, 1, inv_freq, 2, 1.0f, &t, device.stream()),
        ASSAY_OK);
    const assay_tensor from = sdk::make_tensor(x, ASSAY_F32, 1, 1, 4);
    const assay_tensor to = sdk::make_tensor(out, ASSAY_F32, 1, 1, 4);
    device.ops().rope(device.self(), &from, &t, ASSAY_ROPE_NORM, &to, device.stream());
    EXPECT_EQ(std::memcmp(x, out, sizeof x), 0);
}

TEST(RopeTable, IsRoundedOnceFromDouble) {
    Rng rng{fresh_seed()};
    for (const std::uint32_t lanes : {1u, 4u}) {
        const CpuDevice device{"auto", lanes};
        constexpr std::int32_t kHalf = 33;
        std::vector<std::int32_t> pos(50);
        for (auto& p : pos) p = static_cast<std::int32_t>(rng() % 1048576);
        std::vector<double> inv_freq(kHalf);
        for (int i = 0; i < kHalf; ++i)
            inv_freq[static_cast<std::size_t>(i)] = std::pow(8e6, -i / 33.0);
        std::vector<float> want(pos.size() * 2 * kHalf);
        sdk::reference::rope_table(pos.data(), 50, inv_freq.data(), kHalf, 1.3465736f, want.data());
        Matrix got{100, kHalf, 2};
        assay_tensor view = sdk::make_tensor(got.row(0), ASSAY_F32, 50, 2, kHalf);
        view.stride[0] = 2 * (kHalf + 2);
        view.stride[1] = kHalf + 2;
        ASSERT_EQ(device.ops().rope_table(device.self(), pos.data(), 50, inv_freq.data(), kHalf,
                                          1.3465736f, &view, device.stream()),
                  ASSAY_OK);
        EXPECT_TRUE(same_bits(got.dense(), want));
        EXPECT_EQ(got.first_broken_guard(), -1);
    }
}

TEST(Hadamard, IsItsOwnInverseAndKeepsDotProducts) {
    const CpuDevice device;
    Rng rng{fresh_seed()};
    std::vector<float> q = normals(rng, 128), k = normals(rng, 128);
    const std::vector<float> q0 = q, k0 = k;
    const auto transform = [&](std::vector<float>& v) {
        const assay_tensor t = sdk::make_tensor(v.data(), ASSAY_F32, 128);
        ASSERT_EQ(device.ops().hadamard(device.self(), &t, &t, device.stream()), ASSAY_OK);
    };
    const auto dot = [](const std::vector<float>& a, const std::vector<float>& b) {
        double sum = 0;
        for (std::size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
        return sum;
    };
    transform(q);
    transform(k);
    EXPECT_NEAR(dot(q, k), dot(q0, k0), 2e-5);
    EXPECT_FALSE(same_bits(q, q0));
    transform(q);
    for (std::size_t i = 0; i < q.size(); ++i) EXPECT_NEAR(q[i], q0[i], 2e-6f);
}

TEST(Rmsnorm, HasUnitMeanSquare) {
    const CpuDevice device;
    Rng rng{fresh_seed()};
    std::vector<float> x = normals(rng, 7168, 30.0f);
    const assay_tensor t = sdk::make_tensor(x.data(), ASSAY_F32, 7168);
    ASSERT_EQ(device.ops().rmsnorm(device.self(), &t, nullptr, nullptr, 0.0f, &t, device.stream()),
              ASSAY_OK);
    double sum = 0;
    for (float v : x) sum += double{v} * double{v};
    EXPECT_NEAR(sum / 7168, 1.0, 1e-6);
}

// ---- what must be refused --------------------------------------------------------------------

TEST(Arguments, OfTheWrongShapeTypeOrPlaceAreRefused) {
    const CpuDevice device;
    const assay_ops& ops = device.ops();
    void* const self = device.self();
    const assay_stream* const s = device.stream();
    std::vector<float> data(64, 1.0f), other(64, 2.0f);
    const assay_tensor x = sdk::make_tensor(data.data(), ASSAY_F32, 4, 8);
    const assay_tensor out = sdk::make_tensor(other.data(), ASSAY_F32, 4, 8);
    const assay_tensor narrow = sdk::make_tensor(other.data(), ASSAY_F32, 4, 7);
    const assay_tensor half = sdk::make_tensor(other.data(), ASSAY_F16, 4, 8);
    assay_tensor moved = x, column = out;
    moved.stride[0] = 9;  // begins where x does, but is another view
    column.stride[1] = 2;
    const assay_tensor none{};

    for (const assay_tensor& view : {narrow, half, moved, column, none}) {
        const assay_tensor* bad = &view;
        EXPECT_EQ(ops.rmsnorm(self, &x, nullptr, nullptr, kEps, bad, s), ASSAY_INVALID);
        EXPECT_EQ(ops.layernorm(self, &x, nullptr, nullptr, kEps, bad, s), ASSAY_INVALID);
        EXPECT_EQ(ops.glu(self, ASSAY_GLU_SILU, 0, 0, &x, &x, bad, s), ASSAY_INVALID);
        EXPECT_EQ(ops.add(self, &x, &x, 1, bad, s), ASSAY_INVALID);
        EXPECT_EQ(ops.scale(self, &x, 1, bad, s), ASSAY_INVALID);
        EXPECT_EQ(ops.hadamard(self, &x, bad, s), ASSAY_INVALID);
        EXPECT_EQ(ops.softcap(self, &x, 1, bad, s), ASSAY_INVALID);
    }
    const assay_tensor weight = sdk::make_tensor(data.data(), ASSAY_F32, 7);
    EXPECT_EQ(ops.rmsnorm(self, &x, nullptr, &weight, kEps, &out, s), ASSAY_INVALID);
    EXPECT_EQ(ops.rmsnorm(self, &x, &narrow, nullptr, kEps, &out, s), ASSAY_INVALID);
    EXPECT_EQ(ops.add_bias(self, &x, &weight, nullptr, s), ASSAY_INVALID);
    EXPECT_EQ(ops.glu(self, 4, 0, 0, &x, &x, &out, s), ASSAY_INVALID);
    EXPECT_EQ(ops.softcap(self, &x, 0, &out, s), ASSAY_INVALID);
    EXPECT_EQ(ops.hadamard(self, &narrow, &narrow, s), ASSAY_INVALID) << "7 is no power of two";

    const assay_tensor heads = sdk::make_tensor(data.data(), ASSAY_F32, 4, 1, 8);
    const assay_tensor table = sdk::make_tensor(other.data(), ASSAY_F32, 4, 2, 5);
    EXPECT_EQ(ops.rope(self, &heads, &table, ASSAY_ROPE_NORM, &heads, s), ASSAY_INVALID)
        << "10 dims of a head of 8";
    EXPECT_EQ(data, std::vector<float>(64, 1.0f));
    EXPECT_EQ(other, std::vector<float>(64, 2.0f));
}

TEST(Supports, NamesTheTypeItHasNot) {
    const CpuDevice device;
    assay_error why = sdk::make_error();
    for (std::int32_t op = ASSAY_OP_COPY; op <= ASSAY_OP_SAMPLE; ++op)
        EXPECT_EQ(device.ops().supports(device.self(), op, ASSAY_F32, &why), ASSAY_OK) << op;
    EXPECT_EQ(device.ops().supports(device.self(), ASSAY_OP_COPY, ASSAY_BF16, &why), ASSAY_OK);
    EXPECT_EQ(device.ops().supports(device.self(), ASSAY_OP_RMSNORM, ASSAY_BF16, &why),
              ASSAY_UNSUPPORTED);
    EXPECT_NE(std::string{why.text}.find("bf16"), std::string::npos) << why.text;
    EXPECT_EQ(device.ops().supports(device.self(), 99, ASSAY_F32, &why), ASSAY_UNSUPPORTED);
}

}  // namespace
}  // namespace device_test
