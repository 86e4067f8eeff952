#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "abi/plugin.h"
#include "daemon/model/event.hpp"
#include "daemon/model/weights.hpp"
#include "daemon/plugin/boundary.hpp"
#include "daemon/plugin/instance.hpp"

namespace model {

/// Sees tensors between ops, for proofs: layer (-1 outside the layers), name of the value, device
/// tensor. Called with the work that makes it already queued on the stream.
class Tap {
public:
    virtual ~Tap() = default;
    virtual void see(std::int64_t layer, const char* name, const assay_tensor& value,
                     const assay_stream* stream) = 0;
};

/// Stands between the program and its backends, for proofs: makes every call of a step in the
/// launcher's place, so that it sees arguments and outputs of exactly what serves. A status that is
/// not OK ends the step like one of the backend's own.
class Interceptor {
public:
    struct Site {
        const char* op;      ///< "attn_qkv"
        std::int64_t layer;  ///< -1 outside the layers
    };
    virtual ~Interceptor() = default;
    /// @param kind  ASSAY_Q_MATMUL, _BATCHED or _GROUPED
    virtual assay_status matmul(const Site& site, std::int32_t kind, const assay_matmul& args,
                                const plugin::Quant& quant, assay_error* err) = 0;
    virtual assay_status rows(const Site& site, const Weight& weight, const std::int32_t* ids,
                              const assay_tensor& out, assay_error* err) = 0;
    virtual assay_status append(const Site& site, const plugin::Attention& plugin, std::uint32_t layer,
                                const assay_attn_args& args, assay_error* err) = 0;
    virtual assay_status index(const Site& site, const plugin::Attention& plugin, std::uint32_t layer,
                               const assay_attn_index_args& args, assay_error* err) = 0;
    virtual assay_status attend(const Site& site, const plugin::Attention& plugin, std::uint32_t layer,
                                const assay_attn_args& args, assay_error* err) = 0;
    /// The table, and its self, that the next device op goes to.
    virtual const assay_ops& ops(const Site& site, void** self) = 0;
};

/// Issues the calls of one step on one stream. The first call that fails is remembered with layer,
/// op and plugin, and every later call of the step does nothing: a step either ran whole or says
/// where it stopped.
///
/// Thread: engine.
class Launcher {
public:
    Launcher(const plugin::Device& device, const assay_stream* stream)
        : device_{device}, stream_{stream} {}

    /// Scratch that every product may use; large enough for all of them.
    void set_workspace(void* workspace, std::uint64_t bytes) {
        workspace_ = workspace;
        workspace_bytes_ = bytes;
    }

    void begin() {
        failed_ = false;
        failure_.clear();
        layer_ = -1;
    }
    void set_layer(std::int64_t layer) { layer_ = layer; }
    void set_tap(Tap* tap) { tap_ = tap; }
    [[nodiscard]] bool has_tap() const { return tap_ != nullptr; }
    void set_interceptor(Interceptor* interceptor) { interceptor_ = interceptor; }
    [[nodiscard]] bool failed() const { return failed_; }
    /// "layer 3, attention.run, plugin \"cpu-flash\": …".
    [[nodiscard]] const std::string& failure() const { return failure_; }
    [[nodiscard]] const plugin::Device& device() const { return device_; }
    [[nodiscard]] const assay_stream* stream() const { return stream_; }

    void tap(const char* name, const assay_tensor& value) {
        if (tap_ != nullptr && !failed_) tap_->see(layer_, name, value, stream_);
    }

    // ---- quant --------------------------------------------------------------------------------

    struct Product {
        const Weight* weight = nullptr;
        assay_tensor y{};
        const Weight* bias = nullptr;  ///< null, or one that the model may not have
    };
    /// y_i = x W_i^T (+ bias): one call when `joint`, else one each.
    void matmul(const char* op, const assay_tensor& x, std::initializer_list<Product> products,
                std::uint32_t flags = 0, bool joint = false);
    /// A gated unit: y = glu(x Wg^T + bg, x Wu^T + bu). The products' own y are scratch of the form
    /// in two steps, for plugins without the fused one.
    struct Gated {
        std::int32_t kind = ASSAY_GLU_SILU;  ///< assay_glu
        float alpha = 0.0F, limit = 0.0F;
        bool fused = false;
        Product gate, up;
    };
    void matmul_glu(const char* op, const assay_tensor& x, const Gated& gated, const assay_tensor& y);
    void batched(const char* op, const assay_tensor& x, const Weight& w, const assay_tensor& y);
    struct Groups {
        const std::int32_t* row_ids;
        const std::int32_t* offset;
        std::int32_t num_slots;
        std::int32_t max_rows_per_expert;
    };
    /// Each slot times its expert's matrix. Biases are one vector an expert.
    void grouped(const char* op, const Groups& groups, const assay_tensor& x, const Product& product);
    void grouped_glu(const char* op, const Groups& groups, const assay_tensor& x, const Gated& gated,
                     const assay_tensor& y);
    void rows(const char* op, const Weight& w, const std::int32_t* ids, const assay_tensor& out);

    // ---- device -------------------------------------------------------------------------------

    /// Runs `call(ops, self, stream)`, a lambda over the device's op table.
    template <class Call>
    void op(const char* name, Call&& call) {
        if (failed_) return;
        void* self = device_.self();
        const assay_ops& ops = interceptor_ == nullptr ? device_.ops() : interceptor_->ops({name, layer_}, &self);
        check(name, device_.id(), call(ops, self, stream_), nullptr);
    }
    /// What a call of the device's other entries returned.
    void device_call(const char* name, assay_status status, const char* words) {
        if (!failed_) check(name, device_.id(), status, words);
    }
    void copy_bytes(const char* name, void* dst, const void* src, std::uint64_t bytes);
    void record(const char* name, Event& event) {
        if (!failed_) check(name, device_.id(), event.record(), nullptr);
    }
    void wait(const char* name, Event& event) {
        if (!failed_) check(name, device_.id(), event.wait(), nullptr);
    }

    // ---- attention ----------------------------------------------------------------------------

    void prepare(const plugin::Attention& plugin, const assay_attn_batch& batch, std::int32_t phase, void* plan);
    void append(const plugin::Attention& plugin, std::uint32_t layer, const assay_attn_args& args);
    void index(const plugin::Attention& plugin, std::uint32_t layer, const assay_attn_index_args& args);
    void attend(const plugin::Attention& plugin, std::uint32_t layer, const assay_attn_args& args);

private:
    void check(const char* op, const std::string& plugin, assay_status status, const char* words);
    void run_matmul(const char* op, std::int32_t kind, assay_matmul& args, const plugin::Quant& quant);
    [[nodiscard]] assay_matmul arguments(const assay_tensor& x) const;
    [[nodiscard]] assay_matmul arguments(const assay_tensor& x, const Groups& groups) const;
    void glu(const Gated& gated, const assay_tensor& y);

    const plugin::Device& device_;
    const assay_stream* stream_;
    void* workspace_ = nullptr;
    std::uint64_t workspace_bytes_ = 0;
    Tap* tap_ = nullptr;
    Interceptor* interceptor_ = nullptr;
    std::int64_t layer_ = -1;
    bool failed_ = false;
    std::string failure_;
};

}  // namespace model
