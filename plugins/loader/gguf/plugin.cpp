// The loader/1 tables over the parser. The only file here that knows the ABI's calls.

#include "cxx/plugin.hpp"

#include "conventions.hpp"
#include "cxx/progress.hpp"
#include "metadata.hpp"
#include "split.hpp"
#include "text.hpp"
#include "weights.hpp"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace gguf {
namespace {

/// What a handle points at. Immutable once open, so every call is safe from every thread.
struct Model {
    std::vector<Part> parts;
    std::unique_ptr<MetadataTable> metadata;
    std::vector<assay_tensor_info> tensors;
    std::vector<std::string> names;  // null-terminated for the ABI; never resized after open
};

const Model& model_of(const void* handle) noexcept {
    return *static_cast<const Model*>(handle);
}

void add_tensors(Model& model) {
    std::size_t count = 0;
    for (const Part& part : model.parts) count += part.header.tensors.size();
    model.names.reserve(count);
    model.tensors.reserve(count);
    for (std::size_t p = 0; p < model.parts.size(); ++p) {
        for (const TensorInfo& tensor : model.parts[p].header.tensors) {
            model.names.emplace_back(tensor.name);
            assay_tensor_info info{};
            info.size = sizeof info;
            info.name = model.names.back().c_str();
            info.format = tensor.type->format;
            info.rank = static_cast<std::int32_t>(std::max(tensor.rank, 1u));  // a scalar is [1]
            for (std::int32_t d = 0; d < info.rank; ++d)
                info.shape[info.rank - 1 - d] =
                    static_cast<std::int64_t>(tensor.ne[static_cast<std::size_t>(d)]);
            info.file = static_cast<std::uint32_t>(p);
            info.offset = tensor.offset;
            info.bytes = tensor.bytes;
            model.tensors.push_back(info);
        }
    }
}

/// The value of the one option: whether to look for Inf and NaN in all weights; off by default,
/// since it reads every file whole and a host may want to look at the tensors first.
/// @throws sdk::Error{UNSUPPORTED}
bool wants_weight_check(const assay_load_config* config) {
    constexpr std::string_view kKey = "check_weights";
    if (config == nullptr) return false;
    sdk::check_options(*config, {kKey});
    const std::string_view value = sdk::option(*config, kKey, "false");
    if (value != "true" && value != "false")
        throw sdk::Error{
            ASSAY_UNSUPPORTED,
            "option \"check_weights\": expected true or false, found " + quoted(value)};
    return value == "true";
}

void check_all_weights(const Model& model, const assay_host* host) {
    const auto* parallel =
        host == nullptr
            ? nullptr
            : static_cast<const assay_parallel*>(host->service(host, ASSAY_SERVICE_PARALLEL));
    const assay_lanes* lanes = parallel == nullptr ? nullptr : parallel->control_lanes(host);
    std::vector<std::string> names;
    std::vector<WeightSource> sources;
    std::uint64_t total = 0;
    names.reserve(model.parts.size());
    for (const Part& part : model.parts) {
        names.push_back(short_name(part.file.path()));
        sources.push_back({&part.header, part.file.content(), names.back()});
        for (const TensorInfo& tensor : part.header.tensors) total += tensor.bytes;
    }
    sdk::Progress progress{total};
    check_weights(sources, lanes, [&](std::uint64_t bytes) {
        const std::string text = progress.advance(bytes);
        if (!text.empty()) sdk::log(host, ASSAY_INFO, "checking weights: " + text);
    });
    sdk::log(host, ASSAY_INFO,
             "weights checked: " + sdk::progress_text(total, total, progress.seconds()));
}

std::unique_ptr<Model> open_model(const assay_host* host, const assay_load_config* config,
                                  const char* path) {
    const bool scan = wants_weight_check(config);
    auto model = std::make_unique<Model>();
    model->parts = open_parts(path);
    const Part& first = model->parts.front();
    const std::string name = short_name(first.file.path());
    check_conventions(first.header, name);
    model->metadata = std::make_unique<MetadataTable>(first.header, name);
    for (std::uint64_t i = 0; i < model->metadata->size(); ++i)
        if (!model->metadata->holds(i))
            sdk::log(host, ASSAY_WARN,
                     name + ": key " + quoted(model->metadata->entry(i).key) +
                         " holds an integer of 2^63 or more, which cannot be read");
    add_tensors(*model);
    if (scan) check_all_weights(*model, host);
    return model;
}

/// Copies as much of `from` as the caller's struct has room for. The size that it set, if any,
/// wins.
template <class T>
void copy_out(const T& from, T* out) noexcept {
    const std::size_t room =
        out->size == 0 ? sizeof(T) : std::min<std::size_t>(out->size, sizeof(T));
    std::memcpy(out, &from, room);
    out->size = static_cast<std::uint32_t>(room);
}

// ---- loader/1 ---------------------------------------------------------------------------

std::int32_t probe(const char* path) {
    if (path == nullptr) return 0;
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    char magic[4];
    const bool found =
        ::pread(fd, magic, sizeof magic, 0) == static_cast<::ssize_t>(sizeof magic) &&
        std::memcmp(magic, "GGUF", sizeof magic) == 0;
    ::close(fd);
    return found ? 100 : 0;
}

assay_status open(const assay_host* host, const assay_load_config* config, const char* path,
                  void** handle, assay_error* err) {
    return sdk::guard(err, [&] {
        if (path == nullptr || handle == nullptr)
            throw sdk::Error{ASSAY_INVALID, "open: path and handle must not be null"};
        *handle = nullptr;
        *handle = open_model(host, config, path).release();
    });
}

void close(void* handle) {
    delete static_cast<Model*>(handle);
}

std::uint64_t meta_count(void* handle) {
    return model_of(handle).metadata->size();
}

/// UNSUPPORTED, with the key set, for an integer that int64 cannot hold.
assay_status meta(void* handle, std::uint64_t i, assay_meta* out) {
    const MetadataTable& metadata = *model_of(handle).metadata;
    if (out == nullptr || i >= metadata.size()) return ASSAY_INVALID;
    copy_out(metadata.entry(i), out);
    return metadata.holds(i) ? ASSAY_OK : ASSAY_UNSUPPORTED;
}

std::uint64_t tensor_count(void* handle) {
    return model_of(handle).tensors.size();
}

assay_status tensor(void* handle, std::uint64_t i, assay_tensor_info* out) {
    const Model& model = model_of(handle);
    if (out == nullptr || i >= model.tensors.size()) return ASSAY_INVALID;
    copy_out(model.tensors[i], out);
    return ASSAY_OK;
}

std::uint32_t file_count(void* handle) {
    return static_cast<std::uint32_t>(model_of(handle).parts.size());
}

const char* file(void* handle, std::uint32_t i) {
    const Model& model = model_of(handle);
    return i < model.parts.size() ? model.parts[i].file.path().c_str() : nullptr;
}

std::uint64_t file_bytes(void* handle, std::uint32_t i) {
    const Model& model = model_of(handle);
    return i < model.parts.size() ? model.parts[i].file.bytes() : 0;
}

/// The file that holds the range. @throws sdk::Error{ASSAY_INVALID}
const MappedFile& file_with_range(void* handle, std::uint32_t i, std::uint64_t offset,
                                  std::uint64_t bytes) {
    const Model& model = model_of(handle);
    if (i >= model.parts.size())
        throw sdk::Error{ASSAY_INVALID, "file index " + std::to_string(i) + " of " +
                                            std::to_string(model.parts.size())};
    const MappedFile& found = model.parts[i].file;
    if (!found.contains(offset, bytes))
        throw sdk::Error{ASSAY_INVALID, short_name(found.path()) + ": range of " +
                                            std::to_string(bytes) + " bytes at byte " +
                                            std::to_string(offset) + " leaves the file's " +
                                            std::to_string(found.bytes())};
    return found;
}

assay_status map(void* handle, std::uint32_t i, std::uint64_t offset, std::uint64_t bytes,
                 const void** out, assay_error* err) {
    return sdk::guard(err, [&] {
        if (out == nullptr) throw sdk::Error{ASSAY_INVALID, "map: out must not be null"};
        *out = nullptr;
        const MappedFile& found = file_with_range(handle, i, offset, bytes);
        found.check_not_shrunk(offset + bytes);
        *out = found.content().data() + offset;
    });
}

/// One mapping a file lives as long as its handle, so there is nothing to undo.
void unmap(void*, std::uint32_t, const void*, std::uint64_t) {}

assay_status read(void* handle, std::uint32_t i, std::uint64_t offset, std::uint64_t bytes,
                  void* dst, assay_error* err) {
    return sdk::guard(err, [&] {
        if (dst == nullptr && bytes > 0)
            throw sdk::Error{ASSAY_INVALID, "read: dst must not be null"};
        file_with_range(handle, i, offset, bytes).read(offset, bytes, dst);
    });
}

void will_need(void* handle, std::uint32_t i, std::uint64_t offset, std::uint64_t bytes) {
    const Model& model = model_of(handle);
    if (i < model.parts.size()) model.parts[i].file.will_need(offset, bytes);
}

constexpr const char* kFormats[] = {"gguf", nullptr};

constexpr assay_loader kLoader{
    .size = sizeof(assay_loader),
    .formats = kFormats,
    .probe = probe,
    .open = open,
    .close = close,
    .meta_count = meta_count,
    .meta = meta,
    .tensor_count = tensor_count,
    .tensor = tensor,
    .file_count = file_count,
    .file = file,
    .file_bytes = file_bytes,
    .map = map,
    .unmap = unmap,
    .read = read,
    .will_need = will_need,
};

// ---- module -----------------------------------------------------------------------------

assay_status open_module(const assay_host*, assay_error*) {
    return ASSAY_OK;  // nothing is kept between models
}

const void* query(const char* interface_id) {
    return std::string_view{interface_id} == ASSAY_KIND_LOADER ? &kLoader : nullptr;
}

void close_module() {}

}  // namespace
}  // namespace gguf

extern "C" const assay_module assay_module_entry = {
    .magic = ASSAY_MAGIC,
    .size = sizeof(assay_module),
    .abi_major = ASSAY_ABI_MAJOR,
    .abi_minor = ASSAY_ABI_MINOR,
    .id = "gguf",
    .version = "0.1.0",
    .vendor = "assay",
    .build = "g++ " __VERSION__,
    .kinds = ASSAY_KIND_LOADER,
    .open = gguf::open_module,
    .query = gguf::query,
    .close = gguf::close_module,
};
