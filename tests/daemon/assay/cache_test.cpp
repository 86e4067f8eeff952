#include "daemon/assay/cache.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace {

namespace fs = std::filesystem;
using assay::CacheKey;
using assay::Report;
using assay::ReportCache;

class Cache : public testing::Test {
protected:
    void SetUp() override { fs::remove_all(folder_); }
    void TearDown() override { fs::remove_all(folder_); }

    static Report passing() {
        Report report;
        report.finished_at = 1;
        for (const auto level : {assay::Level::kernels, assay::Level::model, assay::Level::coherence}) {
            assay::Check c;
            c.level = level;
            c.verdict = assay::Verdict::passed;
            report.checks.push_back(c);
        }
        return report;
    }
    const fs::path folder_ = fs::path{testing::TempDir()} / "assay_cache_test";
    const CacheKey key_{"program", "model", "full", "limits", "plan"};
};

TEST_F(Cache, GivesBackWhatPassedUnderTheSameKeyAlone) {
    const ReportCache cache{folder_};
    EXPECT_FALSE(cache.find(key_));
    cache.keep(key_, passing());
    const auto found = cache.find(key_);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->from_cache);
    EXPECT_TRUE(found->passed());
    for (int field = 0; field < 5; ++field) {
        CacheKey other = key_;
        std::string* const fields[] = {&other.program, &other.model_hash, &other.depth, &other.limits, &other.plan_text};
        *fields[field] += "x";
        EXPECT_FALSE(cache.find(other)) << field;
    }
    // Fields do not run into each other.
    const CacheKey shifted{"programm", "odel", "full", "limits", "plan"};
    EXPECT_NE(shifted.hex(), key_.hex());
}

TEST_F(Cache, KeepsNothingThatDidNotPass) {
    const ReportCache cache{folder_};
    Report failed = passing();
    failed.checks[0].verdict = assay::Verdict::failed;
    cache.keep(key_, failed);
    EXPECT_FALSE(cache.find(key_));
}

TEST_F(Cache, BelievesNoFileThatOthersMayWriteOrThatIsDamaged) {
    const ReportCache cache{folder_};
    cache.keep(key_, passing());
    const fs::path file = folder_ / (key_.hex() + ".json");
    ASSERT_TRUE(fs::exists(file));
    ::chmod(file.c_str(), 0666);
    EXPECT_FALSE(cache.find(key_));
    ::chmod(file.c_str(), 0600);
    EXPECT_TRUE(cache.find(key_));
    std::ofstream{file, std::ios::trunc} << "{\"passed\":true}";
    EXPECT_FALSE(cache.find(key_));
    cache.keep(key_, passing());
    ::chmod(folder_.c_str(), 0777);
    EXPECT_FALSE(ReportCache{folder_}.find(key_));
}

TEST_F(Cache, WithoutAFolderNothingIsKept) {
    const ReportCache cache{{}};
    cache.keep(key_, passing());
    EXPECT_FALSE(cache.find(key_));
}

}  // namespace
