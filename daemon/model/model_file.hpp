#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "abi/plugin.h"
#include "daemon/base/metadata.hpp"
#include "daemon/plugin/instance.hpp"

namespace model {

/// One tensor of a model file, as the loader described it.
struct FileTensor {
    std::string name;
    std::string format;               ///< a quant format id
    std::vector<std::int64_t> shape;  ///< logical elements, outermost first
    std::uint32_t file = 0;
    std::uint64_t offset = 0, bytes = 0;
};

/// An opened model: metadata and tensors, and access to their bytes. Throws base::ModelError with
/// the loader's words.
///
/// Thread: control; read() from any thread.
class ModelFile {
public:
    ModelFile(plugin::Source source, const assay_loader* api, const std::string& path,
              const plugin::Options& options = {});
    ~ModelFile();
    ModelFile(const ModelFile&) = delete;
    ModelFile& operator=(const ModelFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] const std::string& loader_id() const { return source_.id; }
    [[nodiscard]] const base::Metadata& metadata() const { return metadata_; }
    [[nodiscard]] const std::vector<FileTensor>& tensors() const { return tensors_; }
    /// Index of the tensor, or -1.
    [[nodiscard]] std::int64_t find(std::string_view name) const;
    [[nodiscard]] std::vector<std::string> files() const;
    [[nodiscard]] std::uint64_t total_bytes() const;

    /// The stored bytes, mapped read-only for the life of this object; null when the loader cannot
    /// map.
    [[nodiscard]] const void* map(const FileTensor& tensor) const;
    void read(const FileTensor& tensor, void* dst) const { read(tensor, 0, tensor.bytes, dst); }
    /// `bytes` stored bytes from `offset` of the tensor on.
    void read(const FileTensor& tensor, std::uint64_t offset, std::uint64_t bytes, void* dst) const;

private:
    void read_metadata();
    void read_tensors();

    plugin::Source source_;
    const assay_loader* api_;
    std::string path_;
    void* handle_ = nullptr;
    base::Metadata metadata_;
    std::vector<FileTensor> tensors_;
    std::unordered_map<std::string_view, std::size_t> by_name_;  // views into tensors_
    struct Mapping {
        std::uint32_t file;
        const void* data;
        std::uint64_t bytes;
    };
    mutable std::vector<Mapping> mappings_;
};

}  // namespace model
