// What a hostile file can make the parser allocate is bounded by the file's own size.

#include "plugins/loader/gguf/conventions.hpp"
#include "plugins/loader/gguf/metadata.hpp"
#include "support.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>

namespace {
std::atomic<std::uint64_t> g_allocated_bytes{0};
}

// Not inlined: the compiler would otherwise pair malloc with the library's operator delete and
// warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    g_allocated_bytes += bytes;
    if (void* p = std::malloc(bytes != 0 ? bytes : 1)) return p;
    throw std::bad_alloc{};
}
void* operator new[](std::size_t bytes) {
    return operator new(bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete[](void* p) noexcept {
    operator delete(p);
}
void operator delete(void* p, std::size_t) noexcept {
    operator delete(p);
}
void operator delete[](void* p, std::size_t) noexcept {
    operator delete(p);
}

namespace {

std::uint64_t allocated_by_parsing(const std::string& file) {
    const std::uint64_t before = g_allocated_bytes;
    (void)loader_test::refusal([&] {
        const gguf::Header header = loader_test::parse(file);
        const gguf::MetadataTable table{header, "m.gguf"};
        gguf::check_conventions(header, "m.gguf");
    });
    return g_allocated_bytes - before;
}

TEST(GgufMemory, EveryBadFileIsReadInMemoryOfItsOwnSize) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator{loader_test::bad_folder()}) {
        if (entry.path().extension() != ".gguf") continue;
        const std::string file = loader_test::read_file(entry.path());
        EXPECT_LE(allocated_by_parsing(file), 8192 + 16 * file.size()) << entry.path();
        ++files;
    }
    EXPECT_EQ(files, 167);
}

TEST(GgufMemory, CountsAreNotBelieved) {
    // Counts that the file's size allows, in a file that breaks right behind them.
    std::string file{"GGUF\x03\x00\x00\x00", 8};
    const std::string count{"\x00\x60\x00\x00\x00\x00\x00\x00", 8};
    file += count + count;
    file += std::string(1 << 20, '\0');
    const std::uint64_t bytes = allocated_by_parsing(file);
    EXPECT_GT(bytes, 0u);
    EXPECT_LT(bytes, 1u << 20);
}

}  // namespace
