#include "builder.hpp"

namespace gguf {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kPreambleBytes = 24;

}  // namespace

void HeaderBuilder::put_string(std::string& out, std::string_view text) {
    put(out, std::uint64_t{text.size()});
    out += text;
}

void HeaderBuilder::begin(std::string_view key, ValueType type) {
    put_string(metadata_, key);
    put(metadata_, static_cast<std::uint32_t>(type));
    ++num_kv_;
}

void HeaderBuilder::begin_array(std::string_view key, ValueType item_type, std::uint64_t count) {
    begin(key, ValueType::array);
    put(metadata_, static_cast<std::uint32_t>(item_type));
    put(metadata_, count);
}

void HeaderBuilder::add(const KeyValue& kv) {
    if (kv.is_array())
        begin_array(kv.key, kv.item_type, kv.count);
    else
        begin(kv.key, kv.type);
    if (kv.type == ValueType::string)
        put_string(metadata_, kv.payload);
    else
        metadata_ += kv.payload;
}

void HeaderBuilder::add_string(std::string_view key, std::string_view text) {
    begin(key, ValueType::string);
    put_string(metadata_, text);
}

void HeaderBuilder::add_strings(std::string_view key, std::span<const std::string> items) {
    begin_array(key, ValueType::string, items.size());
    for (const std::string& item : items) put_string(metadata_, item);
}

std::uint64_t HeaderBuilder::add_tensor(std::string_view name, std::span<const std::uint64_t> ne,
                                        const TensorType& type) {
    std::uint64_t elements = 1;
    put_string(infos_, name);
    put(infos_, static_cast<std::uint32_t>(ne.size()));
    for (const std::uint64_t n : ne) {
        put(infos_, n);
        elements *= n;
    }
    put(infos_, type_id(type));
    const std::uint64_t offset = data_bytes_;
    put(infos_, offset);
    data_bytes_ += aligned(elements / type.block_elements * type.block_bytes);
    ++num_tensors_;
    return offset;
}

std::uint64_t HeaderBuilder::file_bytes_with(const TensorInfo& tensor) const noexcept {
    // Length and bytes of the name, n_dims, dimensions, type, offset.
    const std::uint64_t info = 8 + tensor.name.size() + 4 + 8ull * tensor.rank + 4 + 8;
    return aligned(kPreambleBytes + metadata_.size() + infos_.size() + info) + data_bytes_ +
           aligned(tensor.bytes);
}

std::uint64_t HeaderBuilder::data_start() const noexcept {
    const std::uint64_t end = kPreambleBytes + metadata_.size() + infos_.size();
    return num_tensors_ == 0 ? end : aligned(end);
}

std::string HeaderBuilder::bytes() const {
    std::string out = "GGUF";
    out.reserve(data_start());
    put(out, kVersion);
    put(out, num_tensors_);
    put(out, num_kv_);
    out += metadata_;
    out += infos_;
    out.resize(data_start(), '\0');
    return out;
}

}  // namespace gguf
