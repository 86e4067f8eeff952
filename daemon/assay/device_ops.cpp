#include "daemon/assay/device_ops.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>

#include "cxx/plugin.hpp"
#include "daemon/assay/op_checker.hpp"
#include "reference/pointwise.hpp"

namespace assay {
namespace {

OpChecker& checker(void* self) { return *static_cast<OpChecker*>(self); }

/// Rows of a tensor, one behind the other; [T, heads, D] has T * heads of them.
struct Rows {
    const HostTensor& tensor;
    [[nodiscard]] std::int64_t count() const { return tensor.shape().rank == 3 ? tensor.size(0) * tensor.size(1) : tensor.size(0); }
    [[nodiscard]] std::int64_t width() const { return tensor.size(tensor.shape().rank - 1); }
    [[nodiscard]] const float* at(std::int64_t i) const {
        return tensor.shape().rank == 3 ? tensor.row(i / tensor.size(1), i % tensor.size(1)) : tensor.row(i);
    }
};

/// Output row of an op and the definition's, whose sigma `sigma(row, i)` gives.
template <class Sigma>
void compare_row(Tally& tally, const float* got, const std::vector<float>& want, std::int64_t row, Sigma&& sigma) {
    for (std::size_t i = 0; i < want.size(); ++i)
        tally.add(got[i], {double{want[i]}, sigma(i)}, row, static_cast<std::int64_t>(i));
}

double peak(const float* x, std::int64_t n) {
    double p = 0;
    for (std::int64_t i = 0; i < n; ++i) p = std::max(p, std::fabs(double{x[i]}));
    return p;
}

/// Roundings that a mean over n terms takes in f32.
double mean_roundings(std::int64_t n) { return 2 + std::sqrt(static_cast<double>(n)) / 8; }

}  // namespace

assay_ops DeviceOps::table(const assay_ops& real) {
    assay_ops t = real;
    t.copy = copy;
    t.rmsnorm = rmsnorm;
    t.layernorm = layernorm;
    t.rope_table = rope_table;
    t.rope = rope;
    t.glu = glu;
    t.add = add;
    t.scale = scale;
    t.softcap = softcap;
    t.router = router;
    t.expert_sort = expert_sort;
    t.expert_combine = expert_combine;
    t.gather_rows = gather_rows;
    return t;
}

/// Calls the device: inputs are read before (an output may be one of them), outputs that are not
/// poisoned, and `compare(before, after, tally)` judges.
struct OpCall {
    OpChecker& c;
    bool repeats = true;  ///< the call changes nothing but its output
    OpChecker::Clock::time_point begin = OpChecker::Clock::now();

    template <class Call, class Compare>
    assay_status run(const assay_tensor& out, bool is_in_place, Call&& call, Compare&& compare) {
        const HostTensor before = is_in_place ? c.read(out) : c.take(out);
        const assay_status status = call(c.device_.ops(), c.device_.self());
        if (status != ASSAY_OK) return status;
        const HostTensor after = c.read(out);
        Tally tally;
        OpChecker::check_written(before, after, tally);
        compare(before, after, tally);
        if (repeats) {
            before.restore(c.device_, c.stream_);
            if (const assay_status again = call(c.device_.ops(), c.device_.self()); again != ASSAY_OK) return again;
            if (!c.read(out).equals(after)) tally.fail("two runs of one call gave different bits");
        }
        c.report(c.site_, c.device_.id(), {}, std::move(tally), begin);
        return ASSAY_OK;
    }
};

assay_status DeviceOps::copy(void* self, const assay_tensor* x, const assay_tensor* out, const assay_stream* s) {
    OpChecker& c = checker(self);
    if (x->dtype != ASSAY_F32 || out->dtype != ASSAY_F32) return c.device_.ops().copy(c.device_.self(), x, out, s);
    const HostTensor in = c.read(*x);
    return OpCall{c}.run(*out, false, [&](const assay_ops& ops, void* device) { return ops.copy(device, x, out, s); },
                         [&](const HostTensor&, const HostTensor& after, Tally& tally) {
                             const Rows got{after}, want{in};
                             for (std::int64_t r = 0; r < got.count(); ++r)
                                 compare_row(tally, got.at(r), {want.at(r), want.at(r) + want.width()}, r, [](std::size_t) { return 0.0; });
                         });
}

assay_status DeviceOps::rmsnorm(void* self, const assay_tensor* x, const assay_tensor* residual, const assay_tensor* weight,
                                float eps, const assay_tensor* out, const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor in = c.read(*x), w = weight != nullptr ? c.read(*weight) : HostTensor{};
    const HostTensor old = residual != nullptr ? c.read(*residual) : HostTensor{};
    return OpCall{c, residual == nullptr}.run(
        *out, out->data == x->data, [&](const assay_ops& ops, void* device) { return ops.rmsnorm(device, x, residual, weight, eps, out, s); },
        [&](const HostTensor&, const HostTensor& after, Tally& tally) {
            const Rows rows{in}, got{after};
            const std::int64_t n = rows.width();
            const HostTensor sum = residual != nullptr ? c.read(*residual) : HostTensor{};
            std::vector<float> want(static_cast<std::size_t>(n)), input(want);
            for (std::int64_t r = 0; r < rows.count(); ++r) {
                std::copy_n(rows.at(r), n, input.begin());
                if (residual != nullptr)
                    for (std::int64_t i = 0; i < n; ++i) {
                        float& v = input[static_cast<std::size_t>(i)];
                        v = static_cast<float>(double{v} + double{Rows{old}.at(r)[i]});
                        tally.add(Rows{sum}.at(r)[i], {double{v}, kUnit * std::fabs(double{v})}, r, i);
                    }
                sdk::reference::rmsnorm(input.data(), weight != nullptr ? w.row(0) : nullptr, want.data(), 1, n, eps);
                compare_row(tally, got.at(r), want, r, [&](std::size_t i) { return mean_roundings(n) * kUnit * std::fabs(double{want[i]}); });
            }
        });
}

assay_status DeviceOps::layernorm(void* self, const assay_tensor* x, const assay_tensor* weight, const assay_tensor* bias,
                                  float eps, const assay_tensor* out, const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor in = c.read(*x), w = weight != nullptr ? c.read(*weight) : HostTensor{};
    const HostTensor b = bias != nullptr ? c.read(*bias) : HostTensor{};
    return OpCall{c}.run(
        *out, out->data == x->data, [&](const assay_ops& ops, void* device) { return ops.layernorm(device, x, weight, bias, eps, out, s); },
        [&](const HostTensor&, const HostTensor& after, Tally& tally) {
            const Rows rows{in}, got{after};
            const std::int64_t n = rows.width();
            std::vector<float> want(static_cast<std::size_t>(n)), plain(want);
            for (std::int64_t r = 0; r < rows.count(); ++r) {
                const float* row = rows.at(r);
                sdk::reference::layernorm(row, weight != nullptr ? w.row(0) : nullptr, bias != nullptr ? b.row(0) : nullptr, want.data(),
                                          1, n, eps);
                // x - mean cancels: its error is of the size of x, scaled like x itself.
                sdk::reference::layernorm(row, nullptr, nullptr, plain.data(), 1, n, eps);
                const double spread = peak(row, n) > 0 ? peak(plain.data(), n) / peak(row, n) : 0.0;
                const double mean = std::accumulate(row, row + n, 0.0) / static_cast<double>(n);
                compare_row(tally, got.at(r), want, r, [&](std::size_t i) {
                    const double scale = weight != nullptr ? std::fabs(double{w.at(static_cast<std::int64_t>(i))}) : 1.0;
                    return mean_roundings(n) * kUnit *
                           (std::fabs(double{want[i]}) + scale * std::fabs(double{plain[i]}) + 2 * scale * spread * (std::fabs(mean) + peak(row, n)));
                });
            }
        });
}

assay_status DeviceOps::rope_table(void* self, const std::int32_t* pos, std::int64_t num_tokens, const double* inv_freq,
                                   std::int32_t half_dims, float mscale, const assay_tensor* cos_sin, const assay_stream* s) {
    OpChecker& c = checker(self);
    const auto positions = host_ints(pos, num_tokens, c.device_, c.stream_);
    std::vector<double> freq(static_cast<std::size_t>(half_dims));
    c.device_.copy(freq.data(), inv_freq, freq.size() * sizeof(double), c.stream_);
    c.stream_.sync();
    return OpCall{c}.run(
        *cos_sin, false,
        [&](const assay_ops& ops, void* device) { return ops.rope_table(device, pos, num_tokens, inv_freq, half_dims, mscale, cos_sin, s); },
        [&](const HostTensor&, const HostTensor& after, Tally& tally) {
            std::vector<float> want(static_cast<std::size_t>(2 * half_dims));
            for (std::int64_t t = 0; t < num_tokens; ++t) {
                const std::int32_t p = positions[static_cast<std::size_t>(t)];
                sdk::reference::rope_table(&p, 1, freq.data(), half_dims, mscale, want.data());
                for (std::int64_t part = 0; part < 2; ++part)
                    for (std::int64_t i = 0; i < half_dims; ++i) {
                        const double value = double{want[static_cast<std::size_t>(part * half_dims + i)]};
                        // The angle is formed in f64: its own error is that of a few roundings of it.
                        const double angle = std::fabs(p * freq[static_cast<std::size_t>(i)]) * 0x1p-51;
                        tally.add(after.at(t, part, i), {value, double{mscale} * (kUnit + angle)}, t, part * half_dims + i);
                    }
            }
        });
}

assay_status DeviceOps::rope(void* self, const assay_tensor* x, const assay_tensor* cos_sin, std::int32_t style,
                             const assay_tensor* out, const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor in = c.read(*x), table = c.read(*cos_sin);
    return OpCall{c}.run(
        *out, out->data == x->data, [&](const assay_ops& ops, void* device) { return ops.rope(device, x, cos_sin, style, out, s); },
        [&](const HostTensor&, const HostTensor& after, Tally& tally) {
            const std::int64_t dim = in.size(2), half = table.size(2);
            std::vector<float> want(static_cast<std::size_t>(dim)), angles(static_cast<std::size_t>(2 * half));
            for (std::int64_t t = 0; t < in.size(0); ++t) {
                std::copy_n(table.row(t, 0), half, angles.begin());
                std::copy_n(table.row(t, 1), half, angles.begin() + half);
                const double gain = peak(angles.data(), 2 * half);
                for (std::int64_t h = 0; h < in.size(1); ++h) {
                    const float* row = in.row(t, h);
                    sdk::reference::rope(row, angles.data(), style, want.data(), 1, 1, dim, half);
                    compare_row(tally, after.row(t, h), want, t * in.size(1) + h, [&](std::size_t i) {
                        const auto at = static_cast<std::int64_t>(i);
                        if (at >= 2 * half) return 0.0;
                        const std::int64_t other = style == ASSAY_ROPE_NORM ? at ^ 1 : at < half ? at + half : at - half;
                        return kUnit * gain * (std::fabs(double{row[at]}) + std::fabs(double{row[other]}));
                    });
                }
            }
        });
}

assay_status DeviceOps::glu(void* self, std::int32_t kind, float alpha, float limit, const assay_tensor* gate,
                            const assay_tensor* up, const assay_tensor* out, const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor g = c.read(*gate), u = c.read(*up);
    return OpCall{c}.run(
        *out, out->data == gate->data || out->data == up->data,
        [&](const assay_ops& ops, void* device) { return ops.glu(device, kind, alpha, limit, gate, up, out, s); },
        [&](const HostTensor&, const HostTensor& after, Tally& tally) {
            for (std::int64_t t = 0; t < after.size(0); ++t)
                for (std::int64_t i = 0; i < after.size(1); ++i)
                    tally.add(after.at(t, i), gated(kind, double{alpha}, double{limit}, {double{g.at(t, i)}, 0}, {double{u.at(t, i)}, 0}), t, i);
        });
}

assay_status DeviceOps::add(void* self, const assay_tensor* a, const assay_tensor* b, float factor, const assay_tensor* out,
                            const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor x = c.read(*a), y = c.read(*b);
    return OpCall{c}.run(*out, out->data == a->data || out->data == b->data,
                         [&](const assay_ops& ops, void* device) { return ops.add(device, a, b, factor, out, s); },
                         [&](const HostTensor&, const HostTensor& after, Tally& tally) {
                             for (std::int64_t t = 0; t < after.size(0); ++t)
                                 for (std::int64_t i = 0; i < after.size(1); ++i) {
                                     const double p = double{x.at(t, i)}, q = double{factor} * double{y.at(t, i)};
                                     tally.add(after.at(t, i), {p + q, kUnit * (std::fabs(p + q) + std::fabs(q))}, t, i);
                                 }
                         });
}

assay_status DeviceOps::scale(void* self, const assay_tensor* x, float factor, const assay_tensor* out, const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor in = c.read(*x);
    return OpCall{c}.run(*out, out->data == x->data, [&](const assay_ops& ops, void* device) { return ops.scale(device, x, factor, out, s); },
                         [&](const HostTensor&, const HostTensor& after, Tally& tally) {
                             const Rows got{after}, rows{in};
                             for (std::int64_t r = 0; r < got.count(); ++r)
                                 for (std::int64_t i = 0; i < got.width(); ++i) {
                                     const double value = double{rows.at(r)[i]} * double{factor};
                                     tally.add(got.at(r)[i], {value, kUnit * std::fabs(value)}, r, i);
                                 }
                         });
}

assay_status DeviceOps::softcap(void* self, const assay_tensor* x, float cap, const assay_tensor* out, const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor in = c.read(*x);
    return OpCall{c}.run(*out, out->data == x->data, [&](const assay_ops& ops, void* device) { return ops.softcap(device, x, cap, out, s); },
                         [&](const HostTensor&, const HostTensor& after, Tally& tally) {
                             const Rows got{after}, rows{in};
                             for (std::int64_t r = 0; r < got.count(); ++r)
                                 for (std::int64_t i = 0; i < got.width(); ++i) {
                                     const double value = sdk::reference::softcap(double{rows.at(r)[i]}, double{cap});
                                     tally.add(got.at(r)[i], {value, 8 * kUnit * std::fabs(value)}, r, i);
                                 }
                         });
}

assay_status DeviceOps::router(void* self, const assay_router* r, const assay_tensor* logits, const assay_tensor* bias,
                               const assay_tensor* ids, const assay_tensor* weights, const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor in = c.read(*logits), b = bias != nullptr ? c.read(*bias) : HostTensor{};
    const HostTensor ids_before = c.take(*ids);
    const std::int64_t experts = in.size(1), top_k = r->top_k;
    return OpCall{c}.run(
        *weights, false, [&](const assay_ops& ops, void* device) { return ops.router(device, r, logits, bias, ids, weights, s); },
        [&](const HostTensor&, const HostTensor& after, Tally& tally) {
            const HostTensor chosen = c.read(*ids);
            OpChecker::check_written(ids_before, chosen, tally);
            std::vector<std::int32_t> want_ids(static_cast<std::size_t>(top_k)), got_ids(want_ids);
            std::vector<float> want(static_cast<std::size_t>(top_k));
            for (std::int64_t t = 0; t < in.size(0); ++t) {
                const float* row = in.row(t);
                sdk::reference::router(*r, row, bias != nullptr ? b.row(0) : nullptr, 1, experts, want_ids.data(), want.data());
                for (std::int64_t j = 0; j < top_k; ++j) got_ids[static_cast<std::size_t>(j)] = chosen.int_at(t, j);
                if (got_ids != want_ids) {
                    // Two choices whose f32 scores cannot be told apart may change places; logits that are
                    // shifted by less than that must then give what was found.
                    std::vector<float> nudged(row, row + experts);
                    for (const std::int32_t e : got_ids)
                        if (e >= 0 && e < experts) nudged[static_cast<std::size_t>(e)] += static_cast<float>(32 * kUnit * (1 + peak(row, experts)));
                    std::vector<std::int32_t> near(want_ids.size());
                    sdk::reference::router(*r, nudged.data(), bias != nullptr ? b.row(0) : nullptr, 1, experts, near.data(), want.data());
                    if (std::set<std::int32_t>{near.begin(), near.end()} != std::set<std::int32_t>{got_ids.begin(), got_ids.end()}) {
                        tally.fail("token " + std::to_string(t) + ": chose expert " + std::to_string(got_ids.front()) + " first, expected " +
                                   std::to_string(want_ids.front()) + " and in all another set of " + std::to_string(top_k));
                        return;
                    }
                    continue;
                }
                for (std::int64_t j = 0; j < top_k; ++j) {
                    const double value = double{want[static_cast<std::size_t>(j)]};
                    tally.add(after.at(t, j), {value, 8 * kUnit * std::fabs(value)}, t, j);
                }
            }
        });
}

assay_status DeviceOps::expert_sort(void* self, const assay_tensor* ids, std::int32_t num_experts, std::int32_t* slot_of,
                                    std::int32_t* row_ids, std::int32_t* offset, const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor in = c.read(*ids);
    const std::int64_t tokens = ids->shape[0], top_k = ids->shape[1], pairs = tokens * top_k;
    const assay_tensor outs[] = {sdk::make_tensor(slot_of, ASSAY_I32, pairs), sdk::make_tensor(row_ids, ASSAY_I32, pairs),
                                 sdk::make_tensor(offset, ASSAY_I32, num_experts + 1)};
    for (const assay_tensor& out : outs) (void)c.take(out);
    const auto begin = OpChecker::Clock::now();
    const assay_status status = c.device_.ops().expert_sort(c.device_.self(), ids, num_experts, slot_of, row_ids, offset, s);
    if (status != ASSAY_OK) return status;
    std::vector<std::int32_t> flat, want[3];
    for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t j = 0; j < top_k; ++j) flat.push_back(in.int_at(t, j));
    for (int i = 0; i < 3; ++i) want[i].resize(static_cast<std::size_t>(outs[i].shape[0]));
    Tally tally;
    // Ids that the router got wrong are the router's failure, and no definition can sort them.
    const bool is_valid = std::all_of(flat.begin(), flat.end(), [&](std::int32_t e) { return e >= 0 && e < num_experts; });
    if (is_valid) {
        sdk::reference::expert_sort(flat.data(), tokens, top_k, num_experts, want[0].data(), want[1].data(), want[2].data());
        constexpr const char* kNames[] = {"slot_of", "row_ids", "offset"};
        for (int i = 0; i < 3; ++i) {
            const HostTensor got = c.read(outs[i]);
            for (std::int64_t k = 0; k < outs[i].shape[0]; ++k) {
                if (got.int_at(k) == want[i][static_cast<std::size_t>(k)]) continue;
                tally.fail(std::string{kNames[i]} + "[" + std::to_string(k) + "]: expected " +
                           std::to_string(want[i][static_cast<std::size_t>(k)]) + ", found " + std::to_string(got.int_at(k)));
                break;
            }
        }
    }
    c.report(c.site_, c.device_.id(), {}, std::move(tally), begin);
    return ASSAY_OK;
}

assay_status DeviceOps::expert_combine(void* self, const assay_tensor* y, const std::int32_t* slot_of, const assay_tensor* weights,
                                       bool accumulate, const assay_tensor* out, const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor in = c.read(*y), w = c.read(*weights);
    const std::int64_t tokens = weights->shape[0], top_k = weights->shape[1];
    const auto slots = host_ints(slot_of, tokens * top_k, c.device_, c.stream_);
    return OpCall{c}.run(
        *out, accumulate,
        [&](const assay_ops& ops, void* device) { return ops.expert_combine(device, y, slot_of, weights, accumulate, out, s); },
        [&](const HostTensor& before, const HostTensor& after, Tally& tally) {
            for (std::int64_t t = 0; t < tokens; ++t)
                for (std::int64_t i = 0; i < after.size(1); ++i) {
                    double sum = accumulate ? double{before.at(t, i)} : 0.0, sizes = std::fabs(sum);
                    for (std::int64_t j = 0; j < top_k; ++j) {
                        const double term = double{w.at(t, j)} * double{in.at(slots[static_cast<std::size_t>(t * top_k + j)], i)};
                        sum += term;
                        sizes += std::fabs(term);
                    }
                    tally.add(after.at(t, i), {sum, kUnit * sizes}, t, i);
                }
        });
}

assay_status DeviceOps::gather_rows(void* self, const assay_tensor* x, const std::int32_t* rows, const assay_tensor* out,
                                    const assay_stream* s) {
    OpChecker& c = checker(self);
    const HostTensor in = c.read(*x);
    const auto ids = host_ints(rows, out->shape[0], c.device_, c.stream_);
    return OpCall{c}.run(*out, false, [&](const assay_ops& ops, void* device) { return ops.gather_rows(device, x, rows, out, s); },
                         [&](const HostTensor&, const HostTensor& after, Tally& tally) {
                             for (std::int64_t r = 0; r < after.size(0); ++r)
                                 for (std::int64_t i = 0; i < after.size(1); ++i)
                                     tally.add(after.at(r, i), {double{in.at(ids[static_cast<std::size_t>(r)], i)}, 0}, r, i);
                         });
}

}  // namespace assay
