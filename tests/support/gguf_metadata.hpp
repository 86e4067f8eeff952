#pragma once

#include "daemon/base/metadata.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace test_support {

/// Reads the key-value pairs of a GGUF file, for tests that need a real model's metadata but no
/// loader plugin. Reads well-formed files only; throws std::runtime_error on anything else.
class GgufMetadataReader {
public:
    static base::Metadata read(const std::string& path, std::size_t max_bytes = 64u << 20) {
        std::ifstream in{path, std::ios::binary};
        if (!in) throw std::runtime_error{path + ": cannot be opened"};
        GgufMetadataReader reader;
        reader.bytes_.resize(max_bytes);
        in.read(reader.bytes_.data(), static_cast<std::streamsize>(max_bytes));
        reader.bytes_.resize(static_cast<std::size_t>(in.gcount()));
        return reader.parse();
    }

private:
    base::Metadata parse() {
        if (take<std::uint32_t>() != 0x46554747) throw std::runtime_error{"not a GGUF file"};
        if (take<std::uint32_t>() != 3) throw std::runtime_error{"not GGUF version 3"};
        take<std::uint64_t>();  // tensors
        base::Metadata metadata;
        for (auto left = take<std::uint64_t>(); left > 0; --left) {
            std::string key = take_string();
            metadata.set(std::move(key), take_value(take<std::uint32_t>()));
        }
        return metadata;
    }

    template <class T>
    T take() {
        if (bytes_.size() - at_ < sizeof(T)) throw std::runtime_error{"the file ends early"};
        T value;
        std::memcpy(&value, bytes_.data() + at_, sizeof(T));
        at_ += sizeof(T);
        return value;
    }

    std::string take_string() {
        const auto size = take<std::uint64_t>();
        if (size > bytes_.size() - at_) throw std::runtime_error{"the file ends early"};
        std::string value{bytes_.data() + at_, static_cast<std::size_t>(size)};
        at_ += static_cast<std::size_t>(size);
        return value;
    }

    std::int64_t take_int(std::uint32_t type) {
        switch (type) {
            case 0:
                return take<std::uint8_t>();
            case 1:
                return take<std::int8_t>();
            case 2:
                return take<std::uint16_t>();
            case 3:
                return take<std::int16_t>();
            case 4:
                return take<std::uint32_t>();
            case 5:
                return take<std::int32_t>();
            case 7:
                return take<std::uint8_t>() != 0;
            case 10:
                return static_cast<std::int64_t>(take<std::uint64_t>());
            case 11:
                return take<std::int64_t>();
            default:
                throw std::runtime_error{"unknown value type " + std::to_string(type)};
        }
    }

    base::MetaValue take_value(std::uint32_t type) {
        if (type == 6) return static_cast<double>(take<float>());
        if (type == 12) return take<double>();
        if (type == 7) return take<std::uint8_t>() != 0;
        if (type == 8) return take_string();
        if (type != 9) return take_int(type);
        const auto item = take<std::uint32_t>();
        const auto count = take<std::uint64_t>();
        if (item == 8) return take_items<std::string>(count, [this] { return take_string(); });
        if (item == 6) return take_items<double>(count, [this] { return double{take<float>()}; });
        if (item == 12) return take_items<double>(count, [this] { return take<double>(); });
        if (item == 7) return take_items<bool>(count, [this] { return take<std::uint8_t>() != 0; });
        return take_items<std::int64_t>(count, [this, item] { return take_int(item); });
    }

    template <class T, class Take>
    std::vector<T> take_items(std::uint64_t count, Take&& take_one) {
        std::vector<T> items;
        for (std::uint64_t i = 0; i < count; ++i) items.push_back(take_one());
        return items;
    }

    std::string bytes_;
    std::size_t at_ = 0;
};

/// @param path  a whole GGUF file, or its first max_bytes when they hold all metadata
inline base::Metadata read_gguf_metadata(const std::string& path) {
    return GgufMetadataReader::read(path);
}

}  // namespace test_support
