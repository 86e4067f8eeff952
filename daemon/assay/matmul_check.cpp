// OpChecker: products with weights, and rows of them.

#include <algorithm>
#include <cmath>
#include <map>

#include "cxx/plugin.hpp"
#include "daemon/assay/op_checker.hpp"
#include "daemon/base/check.hpp"

namespace assay {
namespace {

std::string tensor_name(const Definition& definition, const std::optional<Place>& place) {
    if (!place) return {};
    const model::Weight& w = definition.weight(*place);
    return w.tensor != nullptr ? w.tensor->name : std::string{};
}

}  // namespace

/// One call's rows and weights, on the host. A slot is a row of y: a token's (matmul), a token's of one
/// head (batched), or one of a token and an expert (grouped).
struct OpChecker::Products {
    struct Slot {
        std::int64_t y_row, head;  ///< where it lies in y; head -1: y is [rows, N]
        std::int64_t x_row;
        std::int64_t expert;
    };

    const OpChecker& checker;
    const assay_matmul& a;
    std::int32_t kind;
    HostTensor x;
    std::vector<Place> places;
    std::vector<HostTensor> before, bias;
    std::vector<Slot> slots;

    Products(const OpChecker& c, const assay_matmul& args, std::int32_t k)
        : checker{c}, a{args}, kind{k}, x{c.read(args.x)} {
        for (std::int32_t i = 0; i < a.num_weights; ++i) {
            const auto place = c.weights_.find(a.w[i]);
            CHECK(place.has_value());  // every weight of a call is one of the model's
            places.push_back(*place);
            bias.push_back(c.read(a.bias[i]));
        }
        for (std::int32_t i = 0; i < num_outputs(); ++i)
            before.push_back((a.flags & ASSAY_MM_ACCUMULATE) != 0 ? c.read(a.y[i]) : c.take(a.y[i]));
        choose_slots();
    }

    [[nodiscard]] std::int32_t num_outputs() const { return a.glu != 0 ? 1 : a.num_weights; }
    [[nodiscard]] bool accumulates() const { return (a.flags & ASSAY_MM_ACCUMULATE) != 0; }

    void choose_slots() {
        const std::int64_t max_rows = checker.sampling_.max_rows;
        if (kind == ASSAY_Q_GROUPED) {
            const auto offset = host_ints(a.expert_offset, a.w[0]->experts + 1, checker.device_, checker.stream_);
            std::vector<std::int32_t> ids;
            if (a.row_ids != nullptr) ids = host_ints(a.row_ids, a.num_slots, checker.device_, checker.stream_);
            std::int64_t expert = 0;
            for (const std::int64_t s : checker.pick(a.num_slots, max_rows)) {
                while (expert + 1 < a.w[0]->experts && offset[static_cast<std::size_t>(expert) + 1] <= s) ++expert;
                slots.push_back({s, -1, ids.empty() ? s : ids[static_cast<std::size_t>(s)], expert});
            }
            return;
        }
        for (const std::int64_t m : checker.pick(a.x.shape[0], max_rows)) {
            if (kind == ASSAY_Q_MATMUL) {
                slots.push_back({m, -1, m, 0});
                continue;
            }
            for (const std::int64_t h : checker.pick(a.w[0]->experts, checker.sampling_.max_heads)) slots.push_back({m, h, m, h});
        }
    }

    /// @param expert  heads and experts have inputs of their own only where x has a head axis
    [[nodiscard]] const float* input(const Slot& slot) const {
        return slot.head >= 0 ? x.row(slot.x_row, slot.head) : x.row(slot.x_row);
    }
    [[nodiscard]] static float output(const HostTensor& y, const Slot& slot, std::int64_t col) {
        return slot.head >= 0 ? y.at(slot.y_row, slot.head, col) : y.at(slot.y_row, col);
    }

    [[nodiscard]] Estimate with_bias(const Estimate& product, std::int32_t i, const Slot& slot, std::int64_t col) const {
        const HostTensor& b = bias[static_cast<std::size_t>(i)];
        if (b.is_absent()) return product;
        return plus(product, double{kind == ASSAY_Q_GROUPED ? b.at(slot.expert, col) : b.at(col)});
    }

    /// Output i of the slots of one expert.
    void compare(std::int32_t i, std::int64_t expert, const std::vector<const Slot*>& group, const HostTensor& after, Tally& tally) const {
        const std::int64_t n = a.w[i]->rows, k = a.w[i]->cols;
        const std::int64_t share = kind == ASSAY_Q_MATMUL ? 1 : std::min<std::int64_t>(a.w[i]->experts, 8);
        const auto cols = checker.pick(n, std::max<std::int64_t>(8, checker.sampling_.max_cols / share));
        std::vector<std::int32_t> ids;
        for (const std::int64_t col : cols) ids.push_back(static_cast<std::int32_t>(expert * n + col));
        const std::int32_t last = a.glu != 0 ? i + 1 : i;
        std::vector<std::vector<float>> rows;
        for (std::int32_t w = i; w <= last; ++w) rows.push_back(checker.definition_.rows(places[static_cast<std::size_t>(w)], ids));
        std::vector<InputRow> inputs;
        for (const Slot* slot : group) inputs.emplace_back(input(*slot), k);

        std::vector<Tally> tallies(cols.size());
        sdk::parallel_for(checker.definition_.lanes(), static_cast<std::int64_t>(cols.size()), [&](std::uint32_t c, std::uint32_t) {
            const std::int64_t col = cols[c];
            std::vector<WeightRow> weights;
            for (const auto& w : rows) weights.emplace_back(w.data() + static_cast<std::int64_t>(c) * k, k);
            const auto product = [&](std::int32_t w, std::size_t s) {
                const double rounding = rounding_of_x(a.w[w]->format, a.flags);
                return with_bias(weights[static_cast<std::size_t>(w - i)].product(inputs[s], rounding), w, *group[s], col);
            };
            for (std::size_t s = 0; s < group.size(); ++s) {
                Estimate want = product(i, s);
                if (a.glu != 0) want = gated(a.glu, double{a.glu_alpha}, double{a.glu_limit}, want, product(i + 1, s));
                if (accumulates()) want = plus(want, double{output(before[static_cast<std::size_t>(i)], *group[s], col)});
                want.sigma += kUnit * std::fabs(want.value);  // the result is f32
                tallies[c].add(output(after, *group[s], col), want, group[s]->y_row, col);
            }
        });
        for (const Tally& t : tallies) tally.merge(t);
    }

    [[nodiscard]] Tally compare() const {
        Tally tally;
        std::map<std::int64_t, std::vector<const Slot*>> by_expert;
        for (const Slot& slot : slots) by_expert[slot.expert].push_back(&slot);
        for (std::int32_t i = 0; i < num_outputs(); ++i) {
            const HostTensor after = checker.read(a.y[i]);
            check_written(before[static_cast<std::size_t>(i)], after, tally);
            for (const auto& [expert, group] : by_expert) compare(i, expert, group, after, tally);
        }
        return tally;
    }
};

assay_status OpChecker::matmul(const Site& site, std::int32_t kind, const assay_matmul& args, const plugin::Quant& quant,
                               assay_error* err) {
    announce(site, quant.id());
    const auto begin = Clock::now();
    const Products products{*this, args, kind};
    const assay_quant& api = quant.api();
    const auto call = kind == ASSAY_Q_GROUPED ? api.grouped_matmul : kind == ASSAY_Q_BATCHED ? api.batched_matmul : api.matmul;
    const assay_status status = call(quant.self(), &args, stream_.get(), err);
    if (status != ASSAY_OK) return status;
    report(site, quant.id(), tensor_name(definition_, products.places.front()), products.compare(), begin);
    return ASSAY_OK;
}

assay_status OpChecker::rows(const Site& site, const model::Weight& weight, const std::int32_t* ids, const assay_tensor& out,
                             assay_error* err) {
    announce(site, weight.quant->id());
    const auto begin = Clock::now();
    const HostTensor before = take(out);
    const assay_status status =
        weight.quant->api().rows(weight.quant->self(), &weight.abi, ids, out.shape[0], &out, stream_.get(), err);
    if (status != ASSAY_OK) return status;
    const auto place = weights_.find(&weight.abi);
    CHECK(place.has_value());
    const HostTensor after = read(out);
    Tally tally;
    check_written(before, after, tally);
    const auto all_ids = host_ints(ids, out.shape[0], device_, stream_);
    const auto picked = pick(out.shape[0], 8 * sampling_.max_rows);
    std::vector<std::int32_t> chosen;
    for (const std::int64_t r : picked) chosen.push_back(all_ids[static_cast<std::size_t>(r)]);
    const std::vector<float> want = definition_.rows(*place, chosen);
    for (std::size_t r = 0; r < picked.size(); ++r)
        for (std::int64_t c = 0; c < weight.abi.cols; ++c) {
            // A product and a difference in f32, both of the size of the block's largest element.
            const float* row = want.data() + static_cast<std::int64_t>(r) * weight.abi.cols;
            double peak = 0;
            const std::int64_t from = c / kGroup * kGroup;
            for (std::int64_t i = from; i < std::min(weight.abi.cols, from + kGroup); ++i) peak = std::max(peak, std::fabs(double{row[i]}));
            tally.add(after.at(picked[r], c), {double{row[c]}, kUnit * peak}, picked[r], c);
        }
    report(site, weight.quant->id(), tensor_name(definition_, place), std::move(tally), begin);
    return ASSAY_OK;
}

}  // namespace assay
