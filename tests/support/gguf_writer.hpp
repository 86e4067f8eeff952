#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_support {

/// Writes small GGUF files for tests, good ones and, through raw() and the fields of Tensor, bad
/// ones. Nothing is checked.
///
///     GgufWriter{}.string("general.architecture", "llama")
///                 .value("llama.block_count", std::uint32_t{2})
///                 .tensor({.name = "token_embd.weight", .ne = {64, 8}, .type = 0, .data = bytes})
///                 .write(path);
class GgufWriter {
public:
    struct Tensor {
        std::string name;
        std::vector<std::uint64_t> ne;          // contiguous dimension first, as the file stores it
        std::uint32_t type = 0;                 // id of the type in the format; 0 is f32, 8 is q8_0
        std::string data;                       // the stored bytes
        std::optional<std::uint64_t> offset{};  // from the data section; otherwise behind the last
    };

    explicit GgufWriter(std::uint32_t version = 3) : version_{version} {}

    /// One scalar; the type in the file is the C++ type's: bool, (u)intN_t, float or double.
    template <class T>
    GgufWriter& value(std::string_view key, T item) {
        begin(key, type_id<T>());
        put(metadata_, item);
        return *this;
    }
    GgufWriter& string(std::string_view key, std::string_view item) {
        begin(key, 8);
        put_string(metadata_, item);
        return *this;
    }
    /// An array of scalars; T may be given: array<std::uint8_t>("key", {1, 2}).
    template <class T>
    GgufWriter& array(std::string_view key, const std::vector<T>& items) {
        begin_array(key, type_id<T>(), items.size());
        for (const T item : items) put(metadata_, item);
        return *this;
    }
    GgufWriter& strings(std::string_view key, const std::vector<std::string>& items) {
        begin_array(key, 8, items.size());
        for (const std::string& item : items) put_string(metadata_, item);
        return *this;
    }
    /// An entry with any type id and payload.
    GgufWriter& raw(std::string_view key, std::uint32_t type, std::string_view payload) {
        begin(key, type);
        metadata_ += payload;
        return *this;
    }
    /// Adds the key and uses the value. The default is 32, without a key.
    GgufWriter& alignment(std::uint32_t bytes) {
        alignment_ = bytes;
        return value("general.alignment", bytes);
    }
    GgufWriter& tensor(Tensor t) {
        tensors_.push_back(std::move(t));
        return *this;
    }

    /// The whole file.
    [[nodiscard]] std::string bytes() const {
        std::string out = "GGUF";
        put(out, version_);
        put(out, std::uint64_t{tensors_.size()});
        put(out, num_kv_);
        out += metadata_;
        std::string data;
        for (const Tensor& t : tensors_) {
            put_string(out, t.name);
            put(out, static_cast<std::uint32_t>(t.ne.size()));
            for (const std::uint64_t n : t.ne) put(out, n);
            put(out, t.type);
            put(out, t.offset.value_or(data.size()));
            data += t.data;
            pad(data);
        }
        if (!tensors_.empty()) pad(out);
        return out + data;
    }

    void write(const std::string& path) const {
        std::ofstream out{path, std::ios::binary};
        const std::string content = bytes();
        out.write(content.data(), static_cast<std::streamsize>(content.size()));
        if (!out.flush()) throw std::runtime_error{path + ": cannot be written"};
    }

private:
    static_assert(std::endian::native == std::endian::little);

    template <class T>
    static constexpr std::uint32_t type_id() {
        if constexpr (std::is_same_v<T, bool>)
            return 7;
        else if constexpr (std::is_same_v<T, float>)
            return 6;
        else if constexpr (std::is_same_v<T, double>)
            return 12;
        else {
            static_assert(std::is_integral_v<T>);
            constexpr std::uint32_t kUnsigned[] = {0, 0, 2, 0, 4, 0, 0, 0, 10};
            constexpr std::uint32_t kSigned[] = {0, 1, 3, 0, 5, 0, 0, 0, 11};
            return std::is_signed_v<T> ? kSigned[sizeof(T)] : kUnsigned[sizeof(T)];
        }
    }

    template <class T>
    static void put(std::string& out, T item) {
        char raw[sizeof(T)];
        std::memcpy(raw, &item, sizeof item);
        out.append(raw, sizeof raw);
    }
    static void put_string(std::string& out, std::string_view text) {
        put(out, std::uint64_t{text.size()});
        out += text;
    }
    void begin(std::string_view key, std::uint32_t type) {
        put_string(metadata_, key);
        put(metadata_, type);
        ++num_kv_;
    }
    void begin_array(std::string_view key, std::uint32_t type, std::size_t count) {
        begin(key, 9);
        put(metadata_, type);
        put(metadata_, std::uint64_t{count});
    }
    void pad(std::string& out) const {
        while (out.size() % alignment_ != 0) out += '\0';
    }

    std::uint32_t version_;
    std::uint32_t alignment_ = 32;
    std::uint64_t num_kv_ = 0;
    std::string metadata_;
    std::vector<Tensor> tensors_;
};

}  // namespace test_support
