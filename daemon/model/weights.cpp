#include "daemon/model/weights.hpp"

#include <cstring>

#include "cxx/plugin.hpp"
#include "daemon/base/error.hpp"

namespace model {

assay_tensor Weight::vector() const {
    return sdk::make_tensor(abi.data, ASSAY_F32, abi.rows * abi.cols);
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

    /// [E, N, K] of a spec; missing leading dimensions are 1.
    void set_shape(Weight& w, const TensorSpec& spec) const {
        std::int64_t dims[3] = {1, 1, 1};
        std::size_t rank = 0;
        for (const Dim dim : spec.shape) rank += dim != Dim::none ? 1 : 0;
        for (std::size_t i = 0; i < rank; ++i) dims[3 - rank + i] = size_of(spec.shape[i], hparams);
        w.abi.experts = dims[0];
        w.abi.rows = dims[1];
        w.abi.cols = dims[2];
    }

    /// Stored bytes where the device can read them.
    const void* place(const FileTensor& tensor) {
        if (device.host_visible())
            if (const void* mapped = file.map(tensor)) return mapped;
        plugin::Buffer& buffer = out.buffers_.emplace_back(device.alloc(tensor.bytes));
        if (device.host_visible()) {
            file.read(tensor, buffer.data());
        } else {
            plugin::Buffer staging = device.alloc(tensor.bytes, ASSAY_SPACE_PINNED);
            file.read(tensor, staging.data());
            device.api().copy(device.self(), buffer.data(), staging.data(), tensor.bytes, stream.get());
            stream.sync();
        }
        return buffer.data();
    }

    void load_matrix(Weight& w, const FileTensor& tensor) {
        w.quant = &quant_for(tensor.format);
        const assay_quant_format* format = w.quant->format(tensor.format);
        if (format == nullptr)
            throw base::ConfigError{"tensor \"" + tensor.name + "\": plugin \"" + w.quant->id() +
                                    "\" does not list format \"" + tensor.format + "\""};
        w.abi.format = format->id;
        w.abi.layout = ASSAY_LAYOUT_STORED;
        w.abi.data = place(tensor);
        w.abi.data_bytes = tensor.bytes;
    }

    /// Widens any format to f32 through the quant plugin that knows it.
    void load_vector(Weight& w, const FileTensor& tensor) {
        const std::int64_t count = w.abi.rows * w.abi.cols;
        plugin::Buffer& buffer = out.buffers_.emplace_back(
            device.alloc(static_cast<std::uint64_t>(count) * sizeof(float)));
        if (tensor.format == "f32" && device.host_visible()) {
            file.read(tensor, buffer.data());
        } else {
            load_matrix(w, tensor);
            const assay_tensor rows = sdk::make_tensor(buffer.data(), ASSAY_F32, w.abi.rows, w.abi.cols);
            plugin::Buffer ids = device.alloc(static_cast<std::uint64_t>(w.abi.rows) * 4);
            std::vector<std::int32_t> host_ids(static_cast<std::size_t>(w.abi.rows));
            for (std::size_t i = 0; i < host_ids.size(); ++i) host_ids[i] = static_cast<std::int32_t>(i);
            device.api().copy(device.self(), ids.data(), host_ids.data(), ids.bytes(), stream.get());
            assay_error err = sdk::make_error();
            if (w.quant->api().rows(w.quant->self(), &w.abi, ids.as<std::int32_t>(), w.abi.rows, &rows,
                                    stream.get(), &err) != ASSAY_OK)
                throw base::AssayError{"plugin \"" + w.quant->id() + "\": tensor \"" + tensor.name +
                                       "\": " + err.text};
            stream.sync();
        }
        w.quant = nullptr;
        w.abi.format = "f32";
        w.abi.data = buffer.data();
        w.abi.data_bytes = buffer.bytes();
    }

    void load(Weight& w, const TensorSpec& spec, std::int64_t index, Use use) {
        if (index < 0) return;
        const FileTensor& tensor = file.tensors()[static_cast<std::size_t>(index)];
        w.abi.size = sizeof w.abi;
        w.tensor = &tensor;
        w.precise = spec.precise;
        set_shape(w, spec);
        if (use == Use::vector)
            load_vector(w, tensor);
        else
            load_matrix(w, tensor);
        out.total_bytes_ += tensor.bytes;
        if (use == Use::matmul || use == Use::batched) out.active_bytes_ += tensor.bytes;
        if (use == Use::grouped)
            out.active_bytes_ += tensor.bytes / static_cast<std::uint64_t>(hparams.num_experts) *
                                 static_cast<std::uint64_t>(hparams.num_experts_per_tok);
        progress.bytes_done += tensor.bytes;
        if (on_progress) on_progress(progress);
    }
};

Weights::Weights(const ModelFile& file, const AuditReport& audit, const plugin::Device& device,
                 const plugin::Stream& stream, const QuantLookup& quant_for,
                 const std::function<void(const LoadProgress&)>& on_progress) {
    Loader loader{*this, file, audit.hparams, device, stream, quant_for, on_progress, {}};
    layers_.resize(static_cast<std::size_t>(audit.hparams.num_layers));
    for (const FileTensor& tensor : file.tensors()) loader.progress.bytes_total += tensor.bytes;

    for (const auto fragment : audit.architecture->fragments) {
        for (const TensorSpec& spec : fragment) {
            const auto role = static_cast<std::size_t>(spec.role);
            if (!spec.is_layer()) {
                loader.load(whole_[role], spec, audit.map.whole[role], spec.use);
                if (spec.role == Role::output && !whole_[role])  // tied
                    loader.load(whole_[role], spec,
                                audit.map.whole[static_cast<std::size_t>(Role::token_embd)], Use::matmul);
                continue;
            }
            for (std::size_t l = 0; l < layers_.size(); ++l)
                loader.load(layers_[l][role], spec, audit.map.layers[l][role], spec.use);
        }
    }
    if (const Weight& freqs = whole(Role::rope_freqs)) {
        rope_factors_.resize(static_cast<std::size_t>(freqs.abi.cols));
        device.api().copy(device.self(), rope_factors_.data(), freqs.abi.data,
                          rope_factors_.size() * sizeof(float), stream.get());
        stream.sync();
        for (const float f : rope_factors_)
            if (!(f > 0.0F))
                throw base::ModelError{"tensor \"rope_freqs.weight\": expected positive divisors, found " +
                                       std::to_string(f)};
    }
}

}  // namespace model
