#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "abi/plugin.h"
#include "daemon/assay/tally.hpp"
#include "daemon/model/weights.hpp"
#include "daemon/plugin/instance.hpp"

namespace assay {

/// Which parameter of the model: layer (-1: of the whole model) and role.
struct Place {
    std::int64_t layer = -1;
    model::Role role = model::Role::count;
};

/// Finds the parameter that a weight of a call is.
class WeightIndex {
public:
    WeightIndex(const model::Weights& weights, std::int64_t num_layers);
    [[nodiscard]] std::optional<Place> find(const assay_weight* weight) const;

private:
    std::unordered_map<const assay_weight*, Place> places_;
};

/// The model's parameters as they are by definition: decoded on the host by the reference plugins, from
/// weights of their own. Thread: one at a time.
class Definition {
public:
    Definition(const model::Weights& weights, const plugin::Device& device, const plugin::Stream& stream,
               const assay_lanes* lanes)
        : weights_{weights}, device_{device}, stream_{stream}, lanes_{lanes} {}

    [[nodiscard]] const model::Weight& weight(Place place) const {
        return place.layer < 0 ? weights_.whole(place.role) : weights_.layer(place.layer, place.role);
    }
    /// Rows of a matrix, seen as [E * N, K]: [ids.size(), K].
    /// Throws base::AssayError with the reference's words.
    [[nodiscard]] std::vector<float> rows(Place place, std::span<const std::int32_t> ids) const;
    /// All elements of a norm or bias.
    [[nodiscard]] std::vector<float> vector(Place place) const;
    [[nodiscard]] const assay_lanes* lanes() const { return lanes_; }

private:
    const model::Weights& weights_;
    const plugin::Device& device_;
    const plugin::Stream& stream_;
    const assay_lanes* lanes_;
};

/// Half of f32's last place at 1: what one rounding costs.
inline constexpr double kUnit = 0x1p-24;
/// Elements that are rounded with one scale, where activations are.
inline constexpr std::int64_t kGroup = 32;

/// How far an element of x may be rounded by a product with a weight of this format, as a share of the
/// largest magnitude of its group: half a step of 8 bits for formats of blocks, of the format itself for
/// f16 and bf16; nothing with ASSAY_MM_PRECISE, 2^-14 at most with ASSAY_MM_FINE.
[[nodiscard]] double rounding_of_x(std::string_view format, std::uint32_t flags);

/// A row of x with what its rounding may cost.
class InputRow {
public:
    InputRow(const float* x, std::int64_t k);
    [[nodiscard]] const float* data() const { return x_; }
    [[nodiscard]] double norm() const { return norm_; }
    [[nodiscard]] double peak_sq(std::size_t group) const { return peak_sq_[group]; }

private:
    const float* x_;
    double norm_;
    std::vector<double> peak_sq_;  // [K / 32]
};

/// A decoded row of a weight.
class WeightRow {
public:
    WeightRow(const float* w, std::int64_t k);
    /// x . w: exact up to the f64 sum, and what rounding of x and f32 sums may do to it.
    [[nodiscard]] Estimate product(const InputRow& x, double rounding) const;

private:
    const float* w_;
    std::int64_t k_;
    double norm_;
    std::vector<double> norm_sq_;  // [K / 32]
};

/// y = act(g) * u of the two products, per assay_glu.
[[nodiscard]] Estimate gated(std::int32_t glu, double alpha, double limit, const Estimate& gate, const Estimate& up);
/// A sum in f32.
[[nodiscard]] Estimate plus(const Estimate& a, double b);

}  // namespace assay
