#pragma once

#include "types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace gguf {

enum class ValueType : std::uint32_t {
    u8 = 0,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    array,
    u64,
    i64,
    f64
};

/// "u32", "string" …; "?" for an id that is not a type.
[[nodiscard]] const char* type_name(ValueType type) noexcept;
/// Bytes of one scalar; 0 for strings and arrays.
[[nodiscard]] std::size_t scalar_bytes(ValueType type) noexcept;
[[nodiscard]] bool is_integer(ValueType type) noexcept;

/// One metadata entry. Borrows from the file's bytes.
struct KeyValue {
    std::string_view key;  // printable ASCII, 1 to 65535 bytes
    ValueType type{};
    ValueType item_type{};     // of an array; otherwise the same as type
    std::uint64_t count = 1;   // items of an array; 1 otherwise
    std::string_view payload;  // a string's bytes; otherwise the items as the file stores them
    std::uint64_t offset = 0;  // byte of the file at which the key begins

    [[nodiscard]] bool is_array() const noexcept { return type == ValueType::array; }
};

/// Item `i` of an integer entry; nullopt for another type or a u64 beyond int64. i < count.
[[nodiscard]] std::optional<std::int64_t> int_item(const KeyValue& kv,
                                                   std::uint64_t i = 0) noexcept;
/// Item `i` of an f32 or f64 entry; nullopt for another type. i < count.
[[nodiscard]] std::optional<double> float_item(const KeyValue& kv, std::uint64_t i = 0) noexcept;

/// Walks the items of a string array.
class StringItems {
public:
    explicit StringItems(const KeyValue& kv) noexcept : rest_{kv.payload} {}
    /// The next item. Call at most `count` times.
    std::string_view next() noexcept;

private:
    std::string_view rest_;
};

struct TensorInfo {
    std::string_view name;  // valid UTF-8 without NUL, 1 to 63 bytes, unique in its file
    const TensorType* type = nullptr;
    std::uint32_t rank = 0;
    std::array<std::uint64_t, 4> ne{1, 1, 1, 1};  // ne[0] is contiguous; ne[rank..] are 1
    std::uint64_t offset = 0;                     // from the start of the file
    std::uint64_t bytes = 0;                      // offset + bytes lies inside the file
    std::uint64_t info_offset = 0;                // byte of the file at which the info begins
};

/// What a file says about itself. Every view borrows from the bytes that were parsed.
struct Header {
    std::uint32_t version = 0;
    std::uint32_t alignment = 32;
    std::uint64_t data_start = 0;
    std::vector<KeyValue> metadata;     // in file order
    std::vector<TensorInfo> tensors;    // in file order
    std::vector<std::uint32_t> by_key;  // indices into metadata, ascending by key

    /// The entry with this key, or null. O(log n).
    [[nodiscard]] const KeyValue* find(std::string_view key) const noexcept;
};

/// Bounds on what a header may ask for; far above any model that exists.
struct Limits {
    std::uint64_t max_kv = 65536;
    std::uint64_t max_tensors = 65536;
    std::uint64_t max_string_bytes = 64ull << 20;  // embedded tokenizer.json files have tens of MB
    std::uint64_t max_array_items = 16ull << 20;
    std::uint64_t max_header_bytes = 256ull << 20;
    std::uint32_t max_alignment = 65536;
};

/// Reads and checks the header of one GGUF file (version 2 or 3, little-endian).
///
/// Nothing is allocated at a size that was not compared with the file's first, sums and products
/// are checked for overflow, and there is no recursion. A header that is returned describes tensors
/// that lie inside the file, are aligned, and do not overlap. What the metadata means is not looked
/// at, general.alignment apart; see check_conventions().
///
/// @param file  the whole file's bytes; only the header is read
/// @param name  the file's name, for messages
/// @throws sdk::Error{ASSAY_CORRUPT} with file, key or tensor, byte offset, expected and found
/// Cost: O(header bytes + n log n) in keys and tensors.
/// Source: GGUF format text, versions 2 and 3.
[[nodiscard]] Header parse_header(std::span<const std::byte> file, std::string_view name,
                                  const Limits& limits = {});

/// First byte after the header and the last tensor, without padding behind it.
[[nodiscard]] std::uint64_t content_end(const Header& header) noexcept;

/// a * b or a + b into `out`; false when 64 bits do not hold it.
[[nodiscard]] inline bool checked_mul(std::uint64_t a, std::uint64_t b,
                                      std::uint64_t& out) noexcept {
    return !__builtin_mul_overflow(a, b, &out);
}
[[nodiscard]] inline bool checked_add(std::uint64_t a, std::uint64_t b,
                                      std::uint64_t& out) noexcept {
    return !__builtin_add_overflow(a, b, &out);
}
/// `value` rounded up to a multiple of `alignment`, a power of two; false on overflow.
[[nodiscard]] inline bool checked_round_up(std::uint64_t value, std::uint64_t alignment,
                                           std::uint64_t& out) noexcept {
    if (!checked_add(value, alignment - 1, out)) return false;
    out &= ~(alignment - 1);
    return true;
}

}  // namespace gguf
