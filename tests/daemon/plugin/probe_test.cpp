#include "daemon/plugin/probe.hpp"

#include "tests/daemon/plugin/support.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace {

using plugin::ProbeResult;

ProbeResult probe_fixture(const char* name) {
    return plugin::probe(support::probe_command(), support::fixture(name),
                         std::chrono::milliseconds{30'000});
}

// The start of a reason that ends in words of the system or the linker.
struct Refusal {
    const char* fixture;
    const char* starts_with;
};

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, SaysWhy) {
    const ProbeResult result = probe_fixture(GetParam().fixture);
    EXPECT_EQ(result.problem.rfind(GetParam().starts_with, 0), 0u) << result.problem;
}

INSTANTIATE_TEST_SUITE_P(
    Probe, Refused,
    testing::Values(
        Refusal{"crash-in-open", "crashed in open() (signal 11, SIGSEGV)"},
        Refusal{"crash-on-map", "crashed in mapping (signal 6, SIGABRT)"},
        Refusal{"exit-in-open", "ended the process with exit status 0 in open()"},
        Refusal{"throw-in-open", "let a C++ exception out of open(): no luck today"},
        Refusal{"fail-in-open", "open() failed with status 2: needs AVX-1024, this CPU has none"},
        Refusal{"opens-once", "open() after close() failed with status 7: already used up"},
        Refusal{"keeps-memory", "still holds 4096 bytes of memory/1 after close()"},
        Refusal{"thread-on-map", "starts a thread when it is mapped; work begins in open()"},
        Refusal{"unresolved", "cannot be mapped: "},
        Refusal{"no-entry", "exports no symbol assay_module_entry"},
        Refusal{"no-tables", "lists kind \"quant/1\", but query() has no table for it"},
        Refusal{"no-matmul", "quant: function matmul is null"},
        Refusal{"same-format-twice", "quant: format \"q8_0\" twice"},
        Refusal{"caps-incomplete",
                "attention: capability row 0: neither served nor absent: prefill, mixed"},
        Refusal{"caps-overlap", "attention: capability row 0: both served and absent: prefill"},
        Refusal{"caps-no-reason",
                "attention: capability row 0: no reason for absent phases (prefill, mixed)"}),
    [](const testing::TestParamInfo<Refusal>& row) {
        std::string name = row.param.fixture;
        std::replace(name.begin(), name.end(), '-', '_');
        return name;
    });

TEST(Probe, UnresolvedSymbolIsNamed) {
    EXPECT_NE(probe_fixture("unresolved").problem.find("fixture_symbol_that_nobody_defines"),
              std::string::npos);
}

TEST(Probe, HealthyImagesPassWithTheirFacts) {
    const ProbeResult quant = probe_fixture("quant-b");
    EXPECT_EQ(quant.problem, "");
    ASSERT_EQ(quant.facts.size(), 1u);
    EXPECT_EQ(quant.facts[0], (std::pair<std::string, std::string>{"formats", "q8_0 q6_k"}));
    const ProbeResult attention = probe_fixture("attn-decode-only");
    EXPECT_EQ(attention.problem, "");
    ASSERT_EQ(attention.facts.size(), 1u);
    EXPECT_EQ(attention.facts[0].second, "GQA decode; absent: no prefill kernel in this build");
    const ProbeResult device = probe_fixture("device-none");
    EXPECT_EQ(device.problem, "");
    ASSERT_EQ(device.facts.size(), 1u);
    EXPECT_EQ(device.facts[0].second, "cpu: 0 (no driver on this machine)");
}

TEST(Probe, AHangEndsAtTheDeadline) {
    const ProbeResult result =
        plugin::probe(support::probe_command(), support::fixture("hang-in-open"),
                      std::chrono::milliseconds{2'000});
    EXPECT_EQ(result.problem, "hung in open(): no answer within 2 s");
}

TEST(Probe, AProbeThatCannotStartIsNotThePluginsFault) {
    const ProbeResult result = plugin::probe({{"/nonexistent/probe"}}, support::fixture("quant-a"),
                                             std::chrono::milliseconds{1'000});
    EXPECT_EQ(result.problem,
              "not examined: cannot start /nonexistent/probe: No such file or directory");
}

// A shell stands in for the image's process, where it is easier to make one that misbehaves.
ProbeResult run_script(const std::string& script, std::chrono::milliseconds timeout) {
    return plugin::probe({{"/bin/sh", "-c", script}}, "image", timeout);
}

TEST(Probe, LastWordsAreReported) {
    const ProbeResult result =
        run_script("echo 'smapping' >&3; echo noise >&2; echo 'the reason' >&2; kill -ABRT $$",
                   std::chrono::milliseconds{30'000});
    EXPECT_EQ(result.problem, "crashed in mapping (signal 6, SIGABRT); last output: the reason");
}

TEST(Probe, ALateGrandchildDoesNotHoldTheProbe) {
    // Its sleep keeps the pipes open long after the child itself has ended.
    const auto start = std::chrono::steady_clock::now();
    const ProbeResult result =
        run_script("echo 'd' >&3; sleep 600 & exit 0", std::chrono::milliseconds{30'000});
    EXPECT_EQ(result.problem, "");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{29});
}

TEST(Probe, TheChildInheritsNothing) {
    const int secret = fcntl(0, F_DUPFD, 50);  // without FD_CLOEXEC
    ASSERT_GE(secret, 50);
    const ProbeResult result =
        run_script("for fd in /proc/self/fd/*; do echo \"ffd\t${fd##*/}\" >&3; done; echo d >&3",
                   std::chrono::milliseconds{30'000});
    close(secret);
    EXPECT_EQ(result.problem, "");
    ASSERT_GE(result.facts.size(), 4u);
    for (const auto& [key, value] : result.facts)
        EXPECT_NE(value, std::to_string(secret)) << "descriptor " << value << " came along";
}

TEST(Probe, AFloodOfOutputIsBounded) {
    const ProbeResult result = run_script(
        "echo 'smapping' >&3; head -c 2000000 /dev/zero | tr '\\0' x >&2; "
        "head -c 2000000 /dev/zero | tr '\\0' y >&3; exit 3",
        std::chrono::milliseconds{30'000});
    EXPECT_EQ(result.problem.rfind("ended the process with exit status 3 in mapping", 0), 0u)
        << result.problem.substr(0, 200);
    EXPECT_LT(result.problem.size(), 500u);
}

TEST(ProbeCache, RemembersByContent) {
    plugin::ProbeCache cache;
    EXPECT_EQ(cache.find("a"), nullptr);
    ProbeResult result;
    result.problem = "why";
    cache.keep("a", result);
    ASSERT_NE(cache.find("a"), nullptr);
    EXPECT_EQ(cache.find("a")->problem, "why");
    EXPECT_EQ(cache.find("b"), nullptr);
}

}  // namespace
