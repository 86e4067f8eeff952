// Weights in memory before they are used.

#include "daemon/model/residency.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>

#include "daemon/base/error.hpp"
#include "tests/daemon/model/model_spec.hpp"
#include "tests/support/lanes.hpp"

namespace model {
namespace {

/// A kB value of this process: "VmLck".
std::uint64_t status_bytes(const std::string& wanted) {
    std::ifstream in{"/proc/self/status"};
    for (std::string line; std::getline(in, line);)
        if (line.starts_with(wanted + ":")) return std::stoull(line.substr(wanted.size() + 1)) * 1024;
    return 0;
}

/// Bytes of a mapped file that are in this process's page tables.
std::uint64_t mapped_bytes(const std::string& path) {
    std::ifstream in{"/proc/self/smaps"};
    bool is_ours = false;
    for (std::string line; std::getline(in, line);) {
        if (line.ends_with(path)) is_ours = true;
        if (is_ours && line.starts_with("Rss:")) return std::stoull(line.substr(4)) * 1024;
    }
    return 0;
}

/// A model of 6 MB with one tensor that nothing reads.
model_test::ModelSpec large_model() {
    auto spec = model_test::llama();
    spec.set("vocab_size", 50000);
    for (const char* name : {"token_embd.weight", "output.weight"}) spec.tensors[name] = {16, 50000};
    spec.tensors["v.extra"] = {16, 1000};
    return spec;
}

TEST(Residency, EveryTensorThatIsReadIsMapped) {
    const auto opened = large_model().write();
    const AuditReport report = audit(*opened->file, {"v.*"});
    ASSERT_TRUE(report.passed()) << report.to_text();
    const support::TestLanes lanes{3};
    std::atomic<std::uint64_t> seen{0};
    ASSERT_LT(mapped_bytes(opened->file->path()), 4'000'000U) << "of 6 MB; some kernels map 2 MB at a time";
    const Residency r = make_resident(*opened->file, report, lanes.get(), {}, [&](std::uint64_t n) { seen += n; });
    EXPECT_TRUE(r.is_resident);
    EXPECT_GT(r.bytes, 6'000'000U);
    EXPECT_EQ(seen, r.bytes);
    std::uint64_t total = 0;
    for (const FileTensor& t : opened->file->tensors()) total += t.bytes;
    EXPECT_EQ(r.bytes, total - 16 * 1000 * 4);
    EXPECT_GE(mapped_bytes(opened->file->path()), r.bytes);
}

TEST(Residency, MoreThanThereIsMemoryForStaysOnTheDisk) {
    const auto opened = large_model().write();
    const AuditReport report = audit(*opened->file, {"v.*"});
    std::uint64_t seen = 0;
    const Residency r = make_resident(*opened->file, report, nullptr, {.memory_bytes = 1'000'000},
                                      [&](std::uint64_t n) { seen += n; });
    EXPECT_FALSE(r.is_resident);
    EXPECT_EQ(seen, 0U);
    EXPECT_GT(available_memory(), 1'000'000U);
}

TEST(Residency, LockedWeightsCountAsLockedMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "mlock does nothing under a sanitizer's runtime";
#endif
    const auto opened = large_model().write();
    const AuditReport report = audit(*opened->file, {"v.*"});
    const std::uint64_t before = status_bytes("VmLck");
    try {
        const Residency r = make_resident(*opened->file, report, nullptr, {.lock = true});
        EXPECT_GE(status_bytes("VmLck"), before + r.bytes);
    } catch (const base::ConfigError& e) {  // an account with a small limit: the other half of the contract
        const std::string text = e.what();
        EXPECT_NE(text.find("model.lock_memory"), std::string::npos) << text;
        EXPECT_NE(text.find("LimitMEMLOCK"), std::string::npos) << text;
    }
}

}  // namespace
}  // namespace model
