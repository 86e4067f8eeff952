#pragma once

#include "abi/loader.h"
#include "parse.hpp"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace gguf {

/// The metadata of a header in the form of the ABI: integers of every width as int64, floats as
/// double, bools as bytes, strings as views. Strings borrow from the header's bytes; the rest is
/// owned.
class MetadataTable {
public:
    /// @param name  the file's name, for messages
    /// @throws sdk::Error{ASSAY_CORRUPT} when the converted values would take more than 1 GiB
    MetadataTable(const Header& header, std::string_view name);

    [[nodiscard]] std::uint64_t size() const noexcept { return entries_.size(); }
    /// Entry `i`, i < size(). `holds` is false for a u64 that int64 cannot represent, alone or in
    /// an array: then only the key is set.
    [[nodiscard]] const assay_meta& entry(std::uint64_t i) const noexcept { return entries_[i]; }
    [[nodiscard]] bool holds(std::uint64_t i) const noexcept { return entries_[i].type != 0; }

private:
    void convert(const KeyValue& kv, assay_meta& out);
    void* allocate(std::uint64_t bytes);

    std::vector<assay_meta> entries_;
    std::unique_ptr<char[]> keys_;                      // all keys, each null-terminated
    std::vector<std::unique_ptr<std::byte[]>> values_;  // each aligned for any scalar
};

}  // namespace gguf
