// Built into the test: what the plugin asks of the operating system, from files of our own.
#include "plugins/device/cpu/machine.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

TEST(Machine, CachedFilesOfAControlGroupCountAsFree) {
    std::string name = (fs::temp_directory_path() / "assay-group-XXXXXX").string();
    const fs::path folder = ::mkdtemp(name.data());
    const auto write = [&](const char* file, const char* text) { std::ofstream{folder / file} << text; };
    write("memory.current", "900\n");
    EXPECT_EQ(cpu::free_in_group(folder.string(), 1000), 100U);
    write("memory.stat", "anon 200\ninactive_file 300\nactive_file 350\nslab 50\n");
    EXPECT_EQ(cpu::free_in_group(folder.string(), 1000), 750U);
    EXPECT_EQ(cpu::free_in_group(folder.string(), 200), 0U) << "over its limit";
    write("memory.stat", "inactive_file 5000\n");
    EXPECT_EQ(cpu::free_in_group(folder.string(), 1000), 1000U);
    fs::remove_all(folder);
}

TEST(Machine, SaysHowMuchMemoryThereIs) {
    std::uint64_t free = 0, total = 0;
    cpu::memory_now(free, total);
    EXPECT_GT(total, 0U);
    EXPECT_LE(free, total);
}

}  // namespace
