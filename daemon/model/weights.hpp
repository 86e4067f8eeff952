#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/model/audit.hpp"
#include "daemon/plugin/instance.hpp"

namespace model {

/// One parameter of the model where it is computed with.
struct Weight {
    assay_weight abi{};                    ///< data null: the model does not have it
    const plugin::Quant* quant = nullptr;  ///< who multiplies by it; null for vectors
    const FileTensor* tensor = nullptr;    ///< where it came from
    std::uint32_t precision = 0;           ///< precision_flags() of its products

    explicit operator bool() const { return abi.data != nullptr; }
    /// Vectors are f32 on the device: [n].
    [[nodiscard]] assay_tensor vector() const;
    /// Vectors of which each expert has its own: [experts, n].
    [[nodiscard]] assay_tensor vector_per_expert() const;
};

/// Finds the quant instance that serves a format.
using QuantLookup = std::function<const plugin::Quant&(const std::string& format)>;

/// Divisors of the RoPE angles, one a pair; empty where the file has none. For the host.
struct RopeFactors {
    std::vector<float> always;            ///< rope_freqs
    std::vector<float> of_long_context;   ///< rope_factors_long: contexts beyond the original one
    std::vector<float> of_short_context;  ///< rope_factors_short
};

struct LoadProgress {
    std::uint64_t bytes_done = 0, bytes_total = 0;
};

/// All weights of a model on one device, by role. Matrices keep the stored bytes, mapped where the
/// device can read host memory and the loader can map, else read into device memory; or the layout that
/// the quant plugin repacks them to, once. Vectors are
/// widened to f32. What a fused tensor holds is cut into its parts: views of the mapped file, except
/// that parts of experts, which do not lie together, are read into memory of their own.
///
/// The ModelFile, the device and the quant instances must outlive it.
class Weights {
public:
    /// Throws base::ModelError naming the tensor.
    Weights(const ModelFile& file, const AuditReport& audit, const plugin::Device& device,
            const plugin::Stream& stream, const QuantLookup& quant_for,
            const std::function<void(const LoadProgress&)>& on_progress = {});

    [[nodiscard]] const Weight& whole(Role role) const { return whole_[static_cast<std::size_t>(role)]; }
    [[nodiscard]] const Weight& layer(std::int64_t layer, Role role) const {
        return layers_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(role)];
    }
    [[nodiscard]] const RopeFactors& rope_factors() const { return rope_factors_; }
    /// Bytes that one decode step of one sequence reads of the matrices (active experts only).
    [[nodiscard]] std::uint64_t active_bytes() const { return active_bytes_; }
    [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }
    /// Those of them that lie in the mapped file: the system counts such memory as free.
    [[nodiscard]] std::uint64_t mapped_bytes() const { return mapped_bytes_; }
    /// What the plan says of weights that are not held as they are stored: one line each.
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

private:
    struct Loader;
    using Roles = std::array<Weight, kNumRoles>;

    Roles whole_;
    std::vector<Roles> layers_;
    std::deque<plugin::Buffer> buffers_;
    RopeFactors rope_factors_;
    std::uint64_t active_bytes_ = 0, total_bytes_ = 0, mapped_bytes_ = 0;
    std::vector<std::string> notes_;
    std::set<std::string> layouts_;  ///< names of packed layouts, which weights point at
};

}  // namespace model
