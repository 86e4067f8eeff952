#include "metadata.hpp"

#include "text.hpp"

#include <cstring>
#include <string>

namespace gguf {
namespace {

constexpr std::uint64_t kMaxValueBytes = 1ull << 30;

assay_meta_type meta_type(ValueType type) noexcept {
    switch (type) {
        case ValueType::string:
            return ASSAY_META_STR;
        case ValueType::boolean:
            return ASSAY_META_BOOL;
        case ValueType::f32:
        case ValueType::f64:
            return ASSAY_META_F64;
        default:
            return ASSAY_META_I64;
    }
}

std::uint64_t item_bytes(assay_meta_type type) noexcept {
    switch (type) {
        case ASSAY_META_STR:
            return sizeof(assay_meta_str);
        case ASSAY_META_BOOL:
            return 1;
        default:
            return 8;
    }
}

bool is_borrowed(const KeyValue& kv) noexcept {
    return kv.item_type == ValueType::boolean || kv.type == ValueType::string;
}

}  // namespace

MetadataTable::MetadataTable(const Header& header, std::string_view name) {
    std::uint64_t key_bytes = 0;
    std::uint64_t value_bytes = 0;
    for (const KeyValue& kv : header.metadata) {
        key_bytes += kv.key.size() + 1;
        if (!is_borrowed(kv)) value_bytes += kv.count * item_bytes(meta_type(kv.item_type));
    }
    if (value_bytes > kMaxValueBytes)
        refuse(name, "metadata too large: expected at most " + std::to_string(kMaxValueBytes) +
                         " bytes once read, found " + std::to_string(value_bytes));

    keys_ = std::make_unique<char[]>(key_bytes);
    char* key = keys_.get();
    entries_.reserve(header.metadata.size());
    for (const KeyValue& kv : header.metadata) {
        assay_meta out{};
        out.size = sizeof out;
        std::memcpy(key, kv.key.data(), kv.key.size());
        key[kv.key.size()] = '\0';
        out.key = key;
        key += kv.key.size() + 1;
        convert(kv, out);
        entries_.push_back(out);
    }
}

void MetadataTable::convert(const KeyValue& kv, assay_meta& out) {
    const assay_meta_type type = meta_type(kv.item_type);
    if (is_borrowed(kv)) {
        out.data = kv.payload.data();
    } else if (type == ASSAY_META_STR) {
        auto* items = static_cast<assay_meta_str*>(allocate(kv.count * sizeof(assay_meta_str)));
        out.data = items;
        StringItems strings{kv};
        for (std::uint64_t i = 0; i < kv.count; ++i) {
            const std::string_view item = strings.next();
            items[i] = {item.data(), item.size()};
        }
    } else if (type == ASSAY_META_F64) {
        auto* items = static_cast<double*>(allocate(kv.count * sizeof(double)));
        out.data = items;
        for (std::uint64_t i = 0; i < kv.count; ++i) items[i] = *float_item(kv, i);
    } else {
        auto* items = static_cast<std::int64_t*>(allocate(kv.count * sizeof(std::int64_t)));
        out.data = items;
        for (std::uint64_t i = 0; i < kv.count; ++i) {
            const auto value = int_item(kv, i);
            if (!value) {  // the key alone remains
                out.data = nullptr;
                return;
            }
            items[i] = *value;
        }
    }
    out.item_type = type;
    out.type = kv.is_array() ? ASSAY_META_ARRAY : type;
    out.count = kv.type == ValueType::string ? kv.payload.size() : kv.count;
}

void* MetadataTable::allocate(std::uint64_t bytes) {
    values_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    return values_.back().get();
}

}  // namespace gguf
