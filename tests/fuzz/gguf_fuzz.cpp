// Any bytes at all: the parser either refuses them with words, or returns a header whose ranges lie
// inside the file. It never reads past the end, and what it returns can be walked and converted.
//
// Built as a libFuzzer program with -DENABLE_FUZZING=ON and clang; every build replays the corpus
// (tests/fuzz/gguf and the files of tests/golden/gguf-bad) through the same function.

#include "cxx/plugin.hpp"
#include "plugins/loader/gguf/conventions.hpp"
#include "plugins/loader/gguf/metadata.hpp"
#include "plugins/loader/gguf/parse.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

bool inside(std::string_view view, std::string_view file) {
    return view.data() >= file.data() && view.data() + view.size() <= file.data() + file.size();
}

void check_header(const gguf::Header& header, std::string_view file) {
    for (const gguf::KeyValue& kv : header.metadata) {
        require(!kv.key.empty() && inside(kv.key, file) && inside(kv.payload, file));
        require(header.find(kv.key) == &kv);
    }
    for (const gguf::TensorInfo& tensor : header.tensors) {
        require(inside(tensor.name, file) && tensor.type != nullptr && tensor.bytes > 0);
        require(tensor.offset >= header.data_start && tensor.offset <= file.size());
        require(tensor.bytes <= file.size() - tensor.offset);
        std::uint64_t elements = 1;
        for (const std::uint64_t n : tensor.ne) elements *= n;
        require(elements / tensor.type->block_elements * tensor.type->block_bytes == tensor.bytes);
    }
    require(gguf::content_end(header) <= file.size() || header.tensors.empty());
}

/// Touches every byte that the table points at, as a host does that copies it.
std::uint64_t walk(const gguf::MetadataTable& table) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < table.size(); ++i) {
        const assay_meta& entry = table.entry(i);
        sum += std::string_view{entry.key}.size();
        if (!table.holds(i)) continue;
        const bool strings = entry.type == ASSAY_META_ARRAY && entry.item_type == ASSAY_META_STR;
        const bool bytes = entry.item_type == ASSAY_META_STR || entry.item_type == ASSAY_META_BOOL;
        for (std::uint64_t k = 0; k < entry.count; ++k) {
            if (strings) {
                const auto& item = static_cast<const assay_meta_str*>(entry.data)[k];
                for (const char c : std::string_view{item.data, item.bytes})
                    sum += static_cast<unsigned char>(c);
            } else if (bytes) {
                sum += static_cast<const unsigned char*>(entry.data)[k];
            } else {
                std::uint64_t item = 0;
                std::memcpy(&item, static_cast<const char*>(entry.data) + k * 8, 8);
                sum += item;
            }
        }
    }
    return sum;
}

volatile std::uint64_t g_sink;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view file{reinterpret_cast<const char*>(data), size};
    try {
        const gguf::Header header =
            gguf::parse_header(std::as_bytes(std::span{data, size}), "fuzz");
        check_header(header, file);
        g_sink = walk(gguf::MetadataTable{header, "fuzz"});
        gguf::check_conventions(header, "fuzz");
    } catch (const sdk::Error& e) {
        require(e.code() == ASSAY_CORRUPT && std::string_view{e.what()}.starts_with("fuzz: "));
    }
    return 0;
}
