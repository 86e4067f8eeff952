#include "daemon/model/model_file.hpp"

#include "cxx/plugin.hpp"
#include "daemon/base/check.hpp"
#include "daemon/base/error.hpp"
#include "daemon/plugin/boundary.hpp"

namespace model {
namespace {

template <class Out, class In>
std::vector<Out> array_of(const assay_meta& meta) {
    const auto* items = static_cast<const In*>(meta.data);
    return std::vector<Out>(items, items + meta.count);
}

base::MetaValue array_value(const assay_meta& meta) {
    switch (meta.item_type) {
        case ASSAY_META_I64: return array_of<std::int64_t, std::int64_t>(meta);
        case ASSAY_META_F64: return array_of<double, double>(meta);
        case ASSAY_META_BOOL: return array_of<bool, std::uint8_t>(meta);
        case ASSAY_META_STR: {
            const auto* items = static_cast<const assay_meta_str*>(meta.data);
            std::vector<std::string> out;
            out.reserve(meta.count);
            for (std::uint64_t i = 0; i < meta.count; ++i) out.emplace_back(items[i].data, items[i].bytes);
            return out;
        }
        default: break;
    }
    throw base::ModelError{"metadata key \"" + std::string{meta.key} + "\": array of unknown item type " +
                           std::to_string(meta.item_type)};
}

base::MetaValue value_of(const assay_meta& meta) {
    switch (meta.type) {
        case ASSAY_META_STR: return std::string{static_cast<const char*>(meta.data), meta.count};
        case ASSAY_META_I64: return *static_cast<const std::int64_t*>(meta.data);
        case ASSAY_META_F64: return *static_cast<const double*>(meta.data);
        case ASSAY_META_BOOL: return *static_cast<const std::uint8_t*>(meta.data) != 0;
        case ASSAY_META_ARRAY: return array_value(meta);
        default: break;
    }
    throw base::ModelError{"metadata key \"" + std::string{meta.key} + "\": unknown type " +
                           std::to_string(meta.type)};
}

}  // namespace

ModelFile::ModelFile(plugin::Source source, const assay_loader* api, const std::string& path,
                     const plugin::Options& options)
    : source_{std::move(source)}, api_{api}, path_{path} {
    const auto abi_options = plugin::to_abi(options);
    assay_load_config config{};
    config.size = sizeof config;
    config.options = abi_options.data();
    config.num_options = static_cast<std::uint32_t>(abi_options.size());
    assay_error err = sdk::make_error();
    if (api_->open(source_.host, &config, path.c_str(), &handle_, &err) != ASSAY_OK)
        throw base::ModelError{plugin::words(err)};
    try {
        read_metadata();
        read_tensors();
    } catch (...) {
        api_->close(handle_);
        throw;
    }
}

ModelFile::~ModelFile() {
    for (const Mapping& m : mappings_) api_->unmap(handle_, m.file, m.data, m.bytes);
    api_->close(handle_);
}

void ModelFile::read_metadata() {
    const std::uint64_t count = api_->meta_count(handle_);
    for (std::uint64_t i = 0; i < count; ++i) {
        assay_meta meta{};
        meta.size = sizeof meta;
        const assay_status status = api_->meta(handle_, i, &meta);
        // A value that no model of ours needs and the ABI cannot carry (u64 beyond int64).
        if (status == ASSAY_UNSUPPORTED && meta.key != nullptr) continue;
        if (status != ASSAY_OK)
            throw base::ModelError{path_ + ": the loader gives no metadata entry " + std::to_string(i)};
        metadata_.set(meta.key, value_of(meta));
    }
}

void ModelFile::read_tensors() {
    const std::uint64_t count = api_->tensor_count(handle_);
    tensors_.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        assay_tensor_info info{};
        info.size = sizeof info;
        if (api_->tensor(handle_, i, &info) != ASSAY_OK)
            throw base::ModelError{path_ + ": the loader gives no tensor " + std::to_string(i)};
        tensors_.push_back({info.name, info.format,
                            std::vector<std::int64_t>(info.shape, info.shape + info.rank), info.file,
                            info.offset, info.bytes});
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

std::int64_t ModelFile::find(std::string_view name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? -1 : static_cast<std::int64_t>(it->second);
}

std::vector<std::string> ModelFile::files() const {
    std::vector<std::string> out;
    for (std::uint32_t i = 0; i < api_->file_count(handle_); ++i) out.emplace_back(api_->file(handle_, i));
    return out;
}

std::uint64_t ModelFile::total_bytes() const {
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < api_->file_count(handle_); ++i) total += api_->file_bytes(handle_, i);
    return total;
}

const void* ModelFile::map(const FileTensor& tensor) const {
    if (api_->map == nullptr) return nullptr;
    assay_error err = sdk::make_error();
    const void* data = nullptr;
    const assay_status status = api_->map(handle_, tensor.file, tensor.offset, tensor.bytes, &data, &err);
    if (status == ASSAY_UNSUPPORTED) return nullptr;
    if (status != ASSAY_OK) throw base::ModelError{"tensor \"" + tensor.name + "\": " + plugin::words(err)};
    mappings_.push_back({tensor.file, data, tensor.bytes});
    return data;
}

void ModelFile::read(const FileTensor& tensor, std::uint64_t offset, std::uint64_t bytes, void* dst) const {
    CHECK(offset <= tensor.bytes && bytes <= tensor.bytes - offset);
    assay_error err = sdk::make_error();
    if (api_->read(handle_, tensor.file, tensor.offset + offset, bytes, dst, &err) != ASSAY_OK)
        throw base::ModelError{"tensor \"" + tensor.name + "\": " + plugin::words(err)};
}

}  // namespace model
