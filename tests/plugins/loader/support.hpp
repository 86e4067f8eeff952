#pragma once

#include "cxx/plugin.hpp"
#include "plugins/loader/gguf/parse.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

namespace loader_test {

inline std::span<const std::byte> as_bytes(std::string_view text) {
    return std::as_bytes(std::span{text.data(), text.size()});
}

/// Borrows from `file`, which must outlive the header.
inline gguf::Header parse(const std::string& file) {
    return gguf::parse_header(as_bytes(file), "test.gguf");
}
gguf::Header parse(std::string&&) = delete;

/// The words with which `body` refuses, or "" when it does not.
template <class Body>
std::string refusal(Body&& body) {
    try {
        body();
        return {};
    } catch (const sdk::Error& e) {
        return e.what();
    }
}

inline std::string parse_refusal(const std::string& file) {
    return refusal([&] { (void)parse(file); });
}

inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream in{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
}

inline void write_file(const std::filesystem::path& path, std::string_view content) {
    std::ofstream out{path, std::ios::binary};
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    ASSERT_TRUE(out.flush()) << path;
}

inline std::filesystem::path bad_folder() {
    return std::filesystem::path{ASSAY_BUILD_DIR} / "goldens" / "gguf-bad";
}

/// A folder of its own for one test, removed at its end.
class TempFolder {
public:
    TempFolder() {
        const auto* test = testing::UnitTest::GetInstance()->current_test_info();
        path_ = std::filesystem::temp_directory_path() /
                (std::string{"assay-"} + test->test_suite_name() + "-" + test->name() + "-" +
                 std::to_string(::getpid()));
        std::filesystem::create_directories(path_);
    }
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;

    [[nodiscard]] std::string operator/(std::string_view name) const {
        return (path_ / name).string();
    }

private:
    std::filesystem::path path_;
};

}  // namespace loader_test
