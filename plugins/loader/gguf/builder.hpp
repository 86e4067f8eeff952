#pragma once

#include "parse.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gguf {

/// The header of a GGUF file (version 3) that is about to be written: metadata and tensor infos in
/// the order they are added, tensors back to back and each aligned.
///
/// Names and sizes are the caller's responsibility: whatever parse_header() accepts is in order.
class HeaderBuilder {
public:
    explicit HeaderBuilder(std::uint32_t alignment = 32) : alignment_{alignment} {}

    /// One entry of another file, bit for bit.
    void add(const KeyValue& kv);
    /// One scalar; the type in the file is the C++ type's: bool, (u)intN_t or float.
    template <class T>
    void add(std::string_view key, T value) {
        begin(key, value_type<T>());
        put(metadata_, value);
    }
    void add_string(std::string_view key, std::string_view text);
    void add_strings(std::string_view key, std::span<const std::string> items);
    template <class T>
    void add_array(std::string_view key, std::span<const T> items) {
        begin_array(key, value_type<T>(), items.size());
        for (const T item : items) put(metadata_, item);
    }
    /// @param ne  contiguous dimension first
    /// @return the offset of its data from data_start()
    std::uint64_t add_tensor(std::string_view name, std::span<const std::uint64_t> ne,
                             const TensorType& type);

    /// What file_bytes() would be with one more tensor.
    [[nodiscard]] std::uint64_t file_bytes_with(const TensorInfo& tensor) const noexcept;

    /// The header, padded: as long as data_start() says.
    [[nodiscard]] std::string bytes() const;
    [[nodiscard]] std::uint64_t data_start() const noexcept;
    /// From the start of the file to the end of the last tensor's padding.
    [[nodiscard]] std::uint64_t file_bytes() const noexcept { return data_start() + data_bytes_; }
    [[nodiscard]] std::uint64_t num_tensors() const noexcept { return num_tensors_; }

private:
    template <class T>
    static constexpr ValueType value_type() {
        if constexpr (std::is_same_v<T, bool>)
            return ValueType::boolean;
        else if constexpr (std::is_same_v<T, float>)
            return ValueType::f32;
        else if constexpr (std::is_same_v<T, std::uint16_t>)
            return ValueType::u16;
        else if constexpr (std::is_same_v<T, std::uint32_t>)
            return ValueType::u32;
        else {
            static_assert(std::is_same_v<T, std::int32_t>);
            return ValueType::i32;
        }
    }
    template <class T>
    static void put(std::string& out, T value) {
        char raw[sizeof(T)];
        std::memcpy(raw, &value, sizeof value);
        out.append(raw, sizeof raw);
    }
    static void put_string(std::string& out, std::string_view text);
    void begin(std::string_view key, ValueType type);
    void begin_array(std::string_view key, ValueType item_type, std::uint64_t count);
    [[nodiscard]] std::uint64_t aligned(std::uint64_t bytes) const noexcept {
        return (bytes + alignment_ - 1) & ~std::uint64_t{alignment_ - 1};
    }

    std::uint32_t alignment_;
    std::uint64_t num_kv_ = 0, num_tensors_ = 0, data_bytes_ = 0;
    std::string metadata_, infos_;
};

}  // namespace gguf
