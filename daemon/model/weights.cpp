#include "daemon/model/weights.hpp"

#include <limits>
#include <numeric>
#include <optional>

#include "cxx/plugin.hpp"
#include "daemon/base/error.hpp"
#include "daemon/plugin/boundary.hpp"
#include "daemon/model/fused_tensors.hpp"
#include "daemon/model/kv_b.hpp"
#include "daemon/model/needs.hpp"
#include "daemon/model/staging.hpp"

namespace model {

assay_tensor Weight::vector() const {
    return sdk::make_tensor(abi.data, ASSAY_F32, abi.rows * abi.cols);
}

assay_tensor Weight::vector_per_expert() const {
    return sdk::make_tensor(abi.data, ASSAY_F32, abi.rows, abi.cols);
}

/// What loading needs and nothing else does.
struct Weights::Loader {
    Weights& out;
    const ModelFile& file;
    const Hparams& hparams;
    const plugin::Device& device;
    const plugin::Stream& stream;
    const QuantLookup& quant_for;
    const std::function<void(const LoadProgress&)>& on_progress;
    LoadProgress progress;
    std::unique_ptr<Staging> staging;  // null where the host writes device memory itself

    /// Everything but the bytes. [E, N, K] of a spec; missing leading dimensions are 1.
    void begin(Weight& w, const TensorSpec& spec, const FileTensor& tensor) const {
        w.abi.size = sizeof w.abi;
        w.tensor = &tensor;
        w.precision = precision_flags(spec, hparams);
        std::int64_t dims[3] = {1, 1, 1};
        std::size_t rank = 0;
        for (const Dim dim : spec.shape) rank += dim != Dim::none ? 1 : 0;
        for (std::size_t i = 0; i < rank; ++i) dims[3 - rank + i] = size_of(spec.shape[i], hparams);
        w.abi.experts = dims[0];
        w.abi.rows = dims[1];
        w.abi.cols = dims[2];
    }

    /// Where the bytes of a parameter lie in its tensor: one run, or, in a fused tensor with experts,
    /// one in each of them.
    struct Extent {
        std::uint64_t offset = 0, run_bytes = 0, stride = 0, num_runs = 1;
        [[nodiscard]] std::uint64_t bytes() const { return run_bytes * num_runs; }
    };

    /// @param w  with its shape and tensor
    static Extent part_of(const Weight& w, const TensorSpec& spec, const FusedRows& rows) {
        const bool is_vector = spec.use == Use::vector;
        const auto experts = static_cast<std::uint64_t>(is_vector ? w.abi.rows : w.abi.experts);
        const auto count = static_cast<std::uint64_t>(is_vector ? w.abi.cols : w.abi.rows);
        const std::uint64_t num_rows = experts * static_cast<std::uint64_t>(rows.total);
        const std::uint64_t row_bytes = w.tensor->bytes / num_rows;
        if (row_bytes * num_rows != w.tensor->bytes)
            throw base::ModelError{"tensor \"" + w.tensor->name + "\": format " + w.tensor->format +
                                   " cannot be cut between rows, which a tensor of several parameters needs"};
        return {static_cast<std::uint64_t>(rows.first) * row_bytes, count * row_bytes,
                static_cast<std::uint64_t>(rows.total) * row_bytes, experts};
    }

    void read(const FileTensor& tensor, const Extent& extent, const plugin::Buffer& buffer) const {
        if (buffer.bytes() != extent.bytes())
            throw base::ModelError{"tensor \"" + tensor.name + "\": expected " + std::to_string(buffer.bytes()) +
                                   " bytes for " + shape_text(tensor.shape) + " " + tensor.format + ", found " +
                                   std::to_string(extent.bytes())};
        if (device.host_visible()) {
            for (std::uint64_t i = 0; i < extent.num_runs; ++i)
                file.read(tensor, extent.offset + i * extent.stride, extent.run_bytes,
                          buffer.as<char>() + i * extent.run_bytes);
            return;
        }
        for (std::uint64_t i = 0; i < extent.num_runs; ++i)
            staging->upload(buffer.as<char>() + i * extent.run_bytes, extent.run_bytes,
                            [&](std::uint64_t at, std::uint64_t bytes, void* to) {
                                file.read(tensor, extent.offset + i * extent.stride + at, bytes, to);
                            });
    }

    /// Between host and device; done on return.
    void copy(void* dst, const void* src, std::uint64_t bytes) const {
        if (device.api().copy(device.self(), dst, src, bytes, stream.get()) != ASSAY_OK)
            throw base::AssayError{"device plugin \"" + device.id() + "\": copying " + std::to_string(bytes) +
                                   " bytes failed"};
        stream.sync();
    }

    /// Stored bytes where the device can read them.
    const void* place(const FileTensor& tensor, const Extent& extent) {
        if (device.host_visible() && extent.num_runs == 1)
            if (const void* mapped = file.map(tensor)) {
                out.mapped_bytes_ += extent.bytes();
                return static_cast<const char*>(mapped) + extent.offset;
            }
        const plugin::Buffer& buffer = out.buffers_.emplace_back(device.alloc(extent.bytes()));
        read(tensor, extent, buffer);
        return buffer.data();
    }

    /// @param op  how it will be used; none: for this moment only, as it is stored
    void load_matrix(Weight& w, const Extent& extent, std::optional<assay_quant_op> op) {
        const FileTensor& tensor = *w.tensor;
        w.quant = &quant_for(tensor.format);
        const assay_quant_format* format = w.quant->format(tensor.format);
        if (format == nullptr)
            throw base::ConfigError{"tensor \"" + tensor.name + "\": plugin \"" + w.quant->id() +
                                    "\" does not list format \"" + tensor.format + "\""};
        w.abi.format = format->id;
        w.abi.layout = ASSAY_LAYOUT_STORED;
        const std::size_t num_buffers = out.buffers_.size();
        w.abi.data = place(tensor, extent);
        w.abi.data_bytes = extent.bytes();
        // What was read from the file for nothing else goes away.
        if (op && pack(w, *op) && out.buffers_.size() > num_buffers + 1)
            out.buffers_.erase(out.buffers_.begin() + static_cast<std::ptrdiff_t>(num_buffers));
    }

    /// Rewrites a weight into the layout that its plugin wants to serve. False: it serves the stored one.
    bool pack(Weight& w, assay_quant_op op) {
        const assay_quant& api = w.quant->api();
        if (api.packed_layout == nullptr || api.repack == nullptr) return false;
        const auto check = [&](assay_status status, const assay_error& err) {
            if (status != ASSAY_OK)
                throw base::AssayError{"plugin \"" + w.quant->id() + "\": repacking tensor \"" + w.tensor->name +
                                       "\": " + err.text};
        };
        char layout[64] = {};
        std::uint64_t bytes = 0;
        assay_error err = sdk::make_error();
        check(api.packed_layout(w.quant->self(), &w.abi, op, layout, &bytes, &err), err);
        layout[sizeof layout - 1] = '\0';
        if (std::string_view{layout} == ASSAY_LAYOUT_STORED) return false;
        assay_weight packed = w.abi;
        packed.layout = out.layouts_.insert(layout).first->c_str();
        packed.data_bytes = bytes;
        plugin::Buffer& buffer = out.buffers_.emplace_back(device.alloc(bytes));
        packed.data = buffer.data();
        check(api.repack(w.quant->self(), &w.abi, &packed, buffer.data(), stream.get(), &err), err);
        stream.sync();
        w.abi = packed;
        return true;
    }

    /// Widens any format to f32 through the quant plugin that knows it.
    void load_vector(Weight& w, const Extent& extent) {
        const FileTensor& tensor = *w.tensor;
        const std::int64_t count = w.abi.rows * w.abi.cols;
        plugin::Buffer& buffer = out.buffers_.emplace_back(
            device.alloc(static_cast<std::uint64_t>(count) * sizeof(float)));
        if (tensor.format == "f32") {
            read(tensor, extent, buffer);
        } else {
            load_matrix(w, extent, std::nullopt);
            const assay_tensor rows = sdk::make_tensor(buffer.data(), ASSAY_F32, w.abi.rows, w.abi.cols);
            std::vector<std::int32_t> host_ids(static_cast<std::size_t>(w.abi.rows));
            std::iota(host_ids.begin(), host_ids.end(), 0);
            const plugin::Buffer ids = device.alloc(host_ids.size() * sizeof(std::int32_t));
            copy(ids.data(), host_ids.data(), ids.bytes());
            assay_error err = sdk::make_error();
            if (w.quant->api().rows(w.quant->self(), &w.abi, ids.as<std::int32_t>(), w.abi.rows, &rows,
                                    stream.get(), &err) != ASSAY_OK)
                throw base::AssayError{"plugin \"" + w.quant->id() + "\": tensor \"" + tensor.name +
                                       "\": " + plugin::words(err)};
            stream.sync();
        }
        w.quant = nullptr;
        w.abi.format = "f32";
        w.abi.data = buffer.data();
        w.abi.data_bytes = buffer.bytes();
    }

    void load(Weight& w, const TensorSpec& spec, const TensorMap::Roles& roles) {
        const std::int64_t index = roles[static_cast<std::size_t>(spec.role)];
        if (index < 0 || spec.use == Use::fused) return;
        const FileTensor& tensor = file.tensors()[static_cast<std::size_t>(index)];
        begin(w, spec, tensor);
        const auto fused = fused_rows(spec.role, hparams);
        const bool is_part = fused && roles[static_cast<std::size_t>(fused->fused)] == index;
        const Extent extent = is_part ? part_of(w, spec, *fused) : Extent{0, tensor.bytes, tensor.bytes, 1};
        if (spec.use == Use::vector)
            load_vector(w, extent);
        else
            load_matrix(w, extent, op_of(spec.use));
        out.total_bytes_ += extent.bytes();
        if (spec.use == Use::matmul || spec.use == Use::batched) out.active_bytes_ += extent.bytes();
        if (spec.use == Use::grouped)
            out.active_bytes_ += extent.bytes() / static_cast<std::uint64_t>(hparams.num_experts) *
                                 static_cast<std::uint64_t>(hparams.num_experts_per_tok);
        progress.bytes_done += extent.bytes();
        if (on_progress) on_progress(progress);
    }

    /// attn_kv_b of one layer: split where it is all that the layer has, else held to the other form.
    void load_kv_b(Roles& weights, const TensorMap::Roles& roles, const Architecture& architecture,
                   KvbReader& reader) {
        const auto tensor = [&](Role role) -> const FileTensor* {
            const std::int64_t index = roles[static_cast<std::size_t>(role)];
            return index < 0 ? nullptr : &file.tensors()[static_cast<std::size_t>(index)];
        };
        const FileTensor* const kv_b = tensor(Role::attn_kv_b);
        if (kv_b == nullptr) return;
        const plugin::Quant& quant = quant_for(kv_b->format);
        const FileTensor *const k_b = tensor(Role::attn_k_b), *const v_b = tensor(Role::attn_v_b);
        if (k_b != nullptr && v_b != nullptr) {
            reader.check({*kv_b, quant}, {*k_b, quant_for(k_b->format)}, {*v_b, quant_for(v_b->format)});
        } else {
            for (const Role role : {Role::attn_k_b, Role::attn_v_b}) {
                Weight& w = weights[static_cast<std::size_t>(role)];
                const TensorSpec& spec = *architecture.spec(role);
                begin(w, spec, *kv_b);
                if (role == Role::attn_k_b) {
                    const plugin::Buffer& keys = out.buffers_.emplace_back(reader.keys(*kv_b, quant));
                    w.quant = &quant_for(split_key_format(kv_b->format));
                    w.abi.format = w.quant->format(split_key_format(kv_b->format))->id;
                    w.abi.layout = ASSAY_LAYOUT_STORED;
                    w.abi.data = keys.data();
                    w.abi.data_bytes = keys.bytes();
                    (void)pack(w, ASSAY_Q_BATCHED);
                } else {
                    load_matrix(w, part_of(w, spec, {Role::attn_kv_b, hparams.qk_nope_head_dim,
                                                     hparams.qk_nope_head_dim + hparams.v_head_dim}), ASSAY_Q_BATCHED);
                }
                out.total_bytes_ += w.abi.data_bytes;
                out.active_bytes_ += w.abi.data_bytes;
            }
        }
        progress.bytes_done += kv_b->bytes;
        if (on_progress) on_progress(progress);
    }

    /// A tensor of divisors, as the host needs it.
    std::vector<float> host_factors(const Weight& w) const {
        if (!w) return {};
        std::vector<float> factors(static_cast<std::size_t>(w.abi.cols));
        copy(factors.data(), w.abi.data, factors.size() * sizeof(float));
        for (const float f : factors)
            if (!(f > 0.0F && f < std::numeric_limits<float>::infinity()))
                throw base::ModelError{"tensor \"" + w.tensor->name + "\": expected positive divisors, found " +
                                       std::to_string(f)};
        return factors;
    }
};

Weights::Weights(const ModelFile& file, const AuditReport& audit, const plugin::Device& device,
                 const plugin::Stream& stream, const QuantLookup& quant_for,
                 const std::function<void(const LoadProgress&)>& on_progress) {
    Loader loader{*this, file, audit.hparams, device, stream, quant_for, on_progress, {}, {}};
    if (!device.host_visible()) loader.staging = std::make_unique<Staging>(device, stream);
    layers_.resize(static_cast<std::size_t>(audit.hparams.num_layers));
    for (const FileTensor& tensor : file.tensors()) loader.progress.bytes_total += tensor.bytes;

    for (const auto fragment : audit.architecture->fragments) {
        for (const TensorSpec& spec : fragment) {
            if (spec.use == Use::kv_b) {
                KvbReader reader{file, KvbShape{audit.hparams}, device, stream};
                for (std::size_t l = 0; l < layers_.size(); ++l)
                    loader.load_kv_b(layers_[l], audit.map.layers[l], *audit.architecture, reader);
                notes_ = reader.notes();
                continue;
            }
            const auto role = static_cast<std::size_t>(spec.role);
            if (!spec.is_layer()) {
                loader.load(whole_[role], spec, audit.map.whole);
                if (spec.role == Role::output && !whole_[role]) {  // tied: the same bytes
                    whole_[role] = whole(Role::token_embd);
                    whole_[role].precision = precision_flags(spec, audit.hparams);
                    active_bytes_ += whole_[role].abi.data_bytes;
                }
                continue;
            }
            for (std::size_t l = 0; l < layers_.size(); ++l)
                loader.load(layers_[l][role], spec, audit.map.layers[l]);
        }
    }
    rope_factors_ = {loader.host_factors(whole(Role::rope_freqs)),
                     loader.host_factors(whole(Role::rope_factors_long)),
                     loader.host_factors(whole(Role::rope_factors_short))};
    if (rope_factors_.of_long_context.empty() != rope_factors_.of_short_context.empty())
        throw base::ModelError{std::string{"tensor \"rope_factors_"} +
                               (rope_factors_.of_long_context.empty() ? "long" : "short") +
                               ".weight\" is missing: the factors for long and short contexts come together"};
}

}  // namespace model
