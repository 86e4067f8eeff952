#include "daemon/assay/report.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace {

using assay::Check;
using assay::Level;
using assay::Report;
using assay::Verdict;

Check check(Level level, Verdict verdict, bool required = true) {
    Check c;
    c.id = std::string{name(level)} + ".some";
    c.level = level;
    c.verdict = verdict;
    c.required = required;
    c.detail = "why";
    return c;
}

Report whole() {
    Report report;
    report.finished_at = 1;
    for (const Level level : {Level::resolve, Level::audit, Level::kernels, Level::model, Level::coherence})
        report.checks.push_back(check(level, Verdict::passed));
    return report;
}

TEST(Report, PassesWhenEveryLevelDid) {
    EXPECT_TRUE(whole().passed());
    EXPECT_EQ(whole().diagnosis(), "");
}

TEST(Report, NothingAtAllIsNoProof) {
    Report report;
    report.finished_at = 1;
    EXPECT_FALSE(report.passed());
    EXPECT_NE(report.diagnosis(), "");
}

TEST(Report, ALevelThatAskedNothingIsNoProof) {
    for (const Level level : {Level::kernels, Level::model, Level::coherence}) {
        Report report = whole();
        std::erase_if(report.checks, [&](const Check& c) { return c.level == level; });
        EXPECT_FALSE(report.passed()) << name(level);
        EXPECT_NE(report.diagnosis().find(name(level)), std::string::npos);
        // Nor is one in which everything was skipped, with whatever reason.
        report.checks.push_back(check(level, Verdict::not_run, false));
        EXPECT_FALSE(report.passed()) << name(level);
    }
}

TEST(Report, NotRunIsNotPassed) {
    Report report = whole();
    report.checks.push_back(check(Level::model, Verdict::not_run));
    EXPECT_FALSE(report.passed());
    EXPECT_EQ(report.diagnosis(), "assay incomplete: model.some was not run: why");
    report.checks.back().required = false;
    EXPECT_TRUE(report.passed());
}

TEST(Report, UnfinishedIsNotPassed) {
    Report report = whole();
    report.finished_at = 0;
    EXPECT_FALSE(report.passed());
}

TEST(Report, TheFirstFailureIsTheDiagnosis) {
    Report report = whole();
    Check failed = check(Level::kernels, Verdict::failed);
    failed.id = "kernels.attention.gqa.run";
    failed.subject = {"cpu-flash", "", "attention.run", 3};
    failed.detail = "row 5: expected 1, found 2";
    report.checks.insert(report.checks.begin() + 2, failed);
    report.checks.push_back(check(Level::model, Verdict::failed));
    EXPECT_FALSE(report.passed());
    EXPECT_EQ(report.diagnosis(),
              "assay failed at level kernels: kernels.attention.gqa.run: layer 3, attention.run, plugin cpu-flash: row 5: expected 1, found 2");
    EXPECT_EQ(report.diagnosis().find('\n'), std::string::npos);
}

TEST(Report, GoesThroughJsonAndBack) {
    Report report = whole();
    report.model = "/models/a \"b\".gguf";
    report.seed = 0xffffffffffffffffULL;
    report.figures = {{"logit_kl", 1e-5}};
    report.checks[3].figure = std::numeric_limits<double>::infinity();
    report.checks[4].subject = {"p", "blk.0.x", "op", 0};
    report.checks.push_back(check(Level::kernels, Verdict::not_run, false));
    const Report back = Report::from_json(report.to_json());
    EXPECT_EQ(back.to_json(), report.to_json());
    EXPECT_EQ(back.seed, report.seed);
    EXPECT_TRUE(back.passed());
}

TEST(Report, HostileJsonIsRefusedNotBelieved) {
    for (const char* text : {"", "{}", "[]", "null", "{\"checks\":[]}", "{\"model\":3}"}) EXPECT_ANY_THROW((void)Report::from_json(text)) << text;
    std::string text = whole().to_json();
    text.replace(text.find("\"kernels\""), 9, "\"kernel\"");
    EXPECT_ANY_THROW((void)Report::from_json(text));
}

}  // namespace
