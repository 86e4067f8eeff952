#include "daemon/base/cgroup.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace base {
namespace {

namespace fs = std::filesystem;

class CgroupTest : public testing::Test {
protected:
    CgroupTest() {
        std::string name = (fs::temp_directory_path() / "assay-cgroup-XXXXXX").string();
        root_ = ::mkdtemp(name.data());
    }
    ~CgroupTest() override { fs::remove_all(root_); }
    void write(const std::string& path, const std::string& text) const {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream{root_ / path} << text;
    }
    [[nodiscard]] std::uint32_t quota() const {
        return quota_processors((root_ / "fs").string(), (root_ / "self").string());
    }
    fs::path root_;
};

TEST_F(CgroupTest, TheTightestGroupCountsRoundedUp) {
    write("self", "0::/pod/container\n");
    write("fs/pod/container/cpu.max", "250000 100000\n");
    write("fs/pod/cpu.max", "max 100000\n");
    EXPECT_EQ(quota(), 3U);
    write("fs/pod/cpu.max", "150000 100000\n");
    EXPECT_EQ(quota(), 2U);
    write("fs/cpu.max", "10000 100000\n");
    EXPECT_EQ(quota(), 1U);
}

TEST_F(CgroupTest, WithoutAQuotaThereIsNone) {
    constexpr auto kNone = std::numeric_limits<std::uint32_t>::max();
    EXPECT_EQ(quota(), kNone) << "no files at all";
    write("self", "12:cpu:/old\n0::/\n");
    write("fs/cpu.max", "max 100000\n");
    EXPECT_EQ(quota(), kNone);
    write("fs/cpu.max", "nonsense\n");
    EXPECT_EQ(quota(), kNone);
    EXPECT_GE(quota_processors(), 1U);
}

}  // namespace
}  // namespace base
