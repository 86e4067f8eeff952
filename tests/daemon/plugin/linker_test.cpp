// What the design takes for granted about the dynamic linker (docs/decisions/0001-plugin-abi.md).
// A platform on which one of these fails needs another design, not another test.

#include "abi/plugin.h"
#include "daemon/plugin/elf_reader.hpp"
#include "tests/daemon/plugin/support.hpp"

#include <dlfcn.h>

namespace {

namespace fs = std::filesystem;
using support::TempFolder;

const assay_module* map(const fs::path& path) {
    void* const image = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(image, nullptr) << dlerror();
    if (image == nullptr) return nullptr;
    return static_cast<const assay_module*>(dlsym(image, "assay_module_entry"));
}

TEST(DynamicLinker, AMappedPathAnswersWithTheOldCode) {
    TempFolder folder;
    const fs::path path = folder.path() / "x.so";
    fs::copy_file(support::fixture("twin-a"), path);
    const assay_module* const first = map(path);
    fs::copy_file(support::fixture("twin-b"), folder.path() / "new");
    fs::rename(folder.path() / "new", path);
    const assay_module* const second = map(path);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(first, second);
    EXPECT_STREQ(second->version, "1.0.0");
}

TEST(DynamicLinker, VisibleDataIsOneForAllImages) {
    const assay_module* const one = map(support::fixture("open-data-1"));
    const assay_module* const two = map(support::fixture("open-data-2"));
    ASSERT_TRUE(one != nullptr && two != nullptr && one != two);
    EXPECT_EQ(one->query("data/1"), two->query("data/1"));
}

TEST(DynamicLinker, DataOfAPluginIsItsOwn) {
    const assay_module* const one = map(support::fixture("own-data-1"));
    const assay_module* const two = map(support::fixture("own-data-2"));
    ASSERT_TRUE(one != nullptr && two != nullptr && one != two);
    EXPECT_NE(one->query("data/1"), two->query("data/1"));
}

TEST(DynamicLinker, AVersionScriptDoesNotBringBackWhatIsHidden) {
    const std::string bytes = support::read(support::fixture("hidden-entry"));
    EXPECT_EQ(plugin::read_image(std::as_bytes(std::span{bytes})).problem,
              "exports no symbol assay_module_entry (0 others); not an assay plugin, or built "
              "without ASSAY_EXPORT");
}

}  // namespace
