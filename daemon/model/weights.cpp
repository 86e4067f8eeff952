#include "daemon/model/weights.hpp"

#include <numeric>

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

    void read(const FileTensor& tensor, const plugin::Buffer& buffer) const {
        if (buffer.bytes() != tensor.bytes)
            throw base::ModelError{"tensor \"" + tensor.name + "\": expected " + std::to_string(buffer.bytes()) +
                                   " bytes for " + shape_text(tensor.shape) + " " + tensor.format + ", found " +
                                   std::to_string(tensor.bytes)};
        if (device.host_visible()) return file.read(tensor, buffer.data());
        const plugin::Buffer staging = device.alloc(tensor.bytes, ASSAY_SPACE_PINNED);
        file.read(tensor, staging.data());
        copy(buffer.data(), staging.data(), tensor.bytes);
    }

    /// Between host and device; done on return.
    void copy(void* dst, const void* src, std::uint64_t bytes) const {
        if (device.api().copy(device.self(), dst, src, bytes, stream.get()) != ASSAY_OK)
            throw base::AssayError{"device plugin \"" + device.id() + "\": copying " + std::to_string(bytes) +
                                   " bytes failed"};
        stream.sync();
    }

    /// Stored bytes where the device can read them.
    const void* place(const FileTensor& tensor) {
        if (device.host_visible())
            if (const void* mapped = file.map(tensor)) return mapped;
        const plugin::Buffer& buffer = out.buffers_.emplace_back(device.alloc(tensor.bytes));
        read(tensor, buffer);
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
        if (tensor.format == "f32") {
            read(tensor, buffer);
        } else {
            load_matrix(w, tensor);
            const assay_tensor rows = sdk::make_tensor(buffer.data(), ASSAY_F32, w.abi.rows, w.abi.cols);
            std::vector<std::int32_t> host_ids(static_cast<std::size_t>(w.abi.rows));
            std::iota(host_ids.begin(), host_ids.end(), 0);
            const plugin::Buffer ids = device.alloc(host_ids.size() * sizeof(std::int32_t));
            copy(ids.data(), host_ids.data(), ids.bytes());
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
        w.precision = precision_flags(spec, hparams);
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
                if (spec.role == Role::output && !whole_[role]) {  // tied: the same bytes
                    whole_[role] = whole(Role::token_embd);
                    whole_[role].precision = precision_flags(spec, audit.hparams);
                    active_bytes_ += whole_[role].abi.data_bytes;
                }
                continue;
            }
            for (std::size_t l = 0; l < layers_.size(); ++l)
                loader.load(layers_[l][role], spec, audit.map.layers[l][role], spec.use);
        }
    }
    if (const Weight& freqs = whole(Role::rope_freqs)) {
        rope_factors_.resize(static_cast<std::size_t>(freqs.abi.cols));
        loader.copy(rope_factors_.data(), freqs.abi.data, rope_factors_.size() * sizeof(float));
        for (const float f : rope_factors_)
            if (!(f > 0.0F))
                throw base::ModelError{"tensor \"rope_freqs.weight\": expected positive divisors, found " +
                                       std::to_string(f)};
    }
}

}  // namespace model
