#include "parse.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "the container is read in place");

struct ValueTraits {
    const char* name;
    std::size_t bytes;
};

constexpr ValueTraits kValueTypes[] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};

template <class T>
T load(std::string_view payload, std::uint64_t i) noexcept {
    T value;
    std::memcpy(&value, payload.data() + i * sizeof(T), sizeof value);
    return value;
}

}  // namespace

const char* type_name(ValueType type) noexcept {
    const auto id = static_cast<std::size_t>(type);
    return id < std::size(kValueTypes) ? kValueTypes[id].name : "?";
}

std::size_t scalar_bytes(ValueType type) noexcept {
    const auto id = static_cast<std::size_t>(type);
    return id < std::size(kValueTypes) ? kValueTypes[id].bytes : 0;
}

bool is_integer(ValueType type) noexcept {
    switch (type) {
        case ValueType::u8:
        case ValueType::i8:
        case ValueType::u16:
        case ValueType::i16:
        case ValueType::u32:
        case ValueType::i32:
        case ValueType::u64:
        case ValueType::i64:
            return true;
        default:
            return false;
    }
}

std::optional<std::int64_t> int_item(const KeyValue& kv, std::uint64_t i) noexcept {
    switch (kv.item_type) {
        case ValueType::u8:
            return load<std::uint8_t>(kv.payload, i);
        case ValueType::i8:
            return load<std::int8_t>(kv.payload, i);
        case ValueType::u16:
            return load<std::uint16_t>(kv.payload, i);
        case ValueType::i16:
            return load<std::int16_t>(kv.payload, i);
        case ValueType::u32:
            return load<std::uint32_t>(kv.payload, i);
        case ValueType::i32:
            return load<std::int32_t>(kv.payload, i);
        case ValueType::i64:
            return load<std::int64_t>(kv.payload, i);
        case ValueType::u64: {
            const auto value = load<std::uint64_t>(kv.payload, i);
            if (value > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
            return static_cast<std::int64_t>(value);
        }
        default:
            return std::nullopt;
    }
}

std::optional<double> float_item(const KeyValue& kv, std::uint64_t i) noexcept {
    if (kv.item_type == ValueType::f32) return load<float>(kv.payload, i);
    if (kv.item_type == ValueType::f64) return load<double>(kv.payload, i);
    return std::nullopt;
}

std::string_view StringItems::next() noexcept {
    const auto length = load<std::uint64_t>(rest_, 0);
    const std::string_view item = rest_.substr(8, length);
    rest_.remove_prefix(8 + length);
    return item;
}

const KeyValue* Header::find(std::string_view key) const noexcept {
    const auto it = std::lower_bound(
        by_key.begin(), by_key.end(), key,
        [this](std::uint32_t i, std::string_view k) { return metadata[i].key < k; });
    return it != by_key.end() && metadata[*it].key == key ? &metadata[*it] : nullptr;
}

std::uint64_t content_end(const Header& header) noexcept {
    std::uint64_t end = header.data_start;
    for (const TensorInfo& tensor : header.tensors)
        end = std::max(end, tensor.offset + tensor.bytes);
    return end;
}

}  // namespace gguf
