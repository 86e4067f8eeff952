// The child's side of a probe: what happens here happens to a process of its own.

#include "daemon/plugin/boundary.hpp"
#include "daemon/plugin/elf_reader.hpp"
#include "daemon/plugin/host.hpp"
#include "daemon/plugin/lanes.hpp"
#include "daemon/plugin/log_queue.hpp"
#include "daemon/plugin/probe.hpp"
#include "daemon/plugin/probe_report.hpp"
#include "daemon/plugin/validate.hpp"
#include "sdk/cxx/plugin.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <filesystem>
#include <sstream>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace plugin {
namespace {

// Writes the lines that probe() reads. A line is one write, so it is whole however the child ends.
class Report {
public:
    void stage(std::string_view name) const { line(report::kStage, name); }
    void problem(std::string_view text) const { line(report::kProblem, text); }
    void fact(std::string_view key, std::string_view value) const {
        line(report::kFact, std::string{key} + '\t' + std::string{value});
    }
    void done() const { line(report::kDone, ""); }

private:
    static void line(char type, std::string_view text) {
        std::string out{type};
        out += text.substr(0, report::kMaxLine);
        std::replace(out.begin(), out.end(), '\n', ' ');
        out += '\n';
        // A report that cannot be written is a report that ends early: the parent sees that.
        if (write(report::kFd, out.data(), out.size()) < 0) _exit(1);
    }
};

void confine() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const rlimit file_bytes{64 << 20, 64 << 20};  // compilers of device code keep caches
    setrlimit(RLIMIT_FSIZE, &file_bytes);
    // A crash ends the child with its signal, whatever handlers the runtime has installed.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
        std::signal(fault, SIG_DFL);
}

std::size_t num_threads() {
    std::error_code ignored;
    std::size_t count = 0;
    for (std::filesystem::directory_iterator it{"/proc/self/task", ignored}, end; it != end;
         it.increment(ignored))
        ++count;
    return count;
}

void report_quant(const assay_quant& table, const Report& report) {
    std::string ids;
    for (std::uint32_t i = 0; i < table.num_formats; ++i)
        ids += (i > 0 ? " " : "") + std::string{table.formats[i]->id};
    report.fact("formats", ids);
}

void report_device(const assay_device& table, const Report& report) {
    std::int32_t count = 0;
    assay_error err = sdk::make_error();
    report.stage("count()");
    assay_status status = ASSAY_OK;
    const std::string thrown =
        exception_let_out("count()", [&] { status = table.count(&count, &err); });
    if (!thrown.empty()) return report.problem(thrown);
    err.text[sizeof err.text - 1] = '\0';
    std::string text = std::string{table.kind} + ": " + std::to_string(count);
    if (status != ASSAY_OK || count == 0) text += " (" + std::string{err.text} + ")";
    report.fact("devices", text);  // none here is no fault of the image
}

void report_attention(const assay_attention& table, const Report& report) {
    for (std::uint32_t i = 0; i < table.num_caps; ++i) {
        const assay_attn_cap& cap = *table.caps[i];
        constexpr const char* kClasses[] = {"?", "GQA", "MLA", "MLA with DSA"};
        std::string text = kClasses[cap.attn_class];
        if ((cap.phases & ASSAY_PREFILL) != 0) text += " prefill";
        if ((cap.phases & ASSAY_DECODE) != 0) text += " decode";
        if ((cap.phases & ASSAY_MIXED) != 0) text += " mixed";
        if (cap.phases_absent != 0) text += "; absent: " + std::string{cap.absent_reason};
        report.fact("attention", text);
    }
}

// False when the table cannot be used; the reasons are then in the report.
bool check_kind(const assay_module& module, const std::string& kind, const Report& report) {
    report.stage("query(\"" + kind + "\")");
    const void* table = nullptr;
    const std::string thrown =
        exception_let_out("query()", [&] { table = module.query(kind.c_str()); });
    if (!thrown.empty()) {
        report.problem(thrown);
        return false;
    }
    if (!is_known_kind(kind)) {
        report.fact("unknown kind", kind);
        return true;
    }
    if (table == nullptr) {
        report.problem("lists kind \"" + kind + "\", but query() has no table for it");
        return false;
    }
    report.stage("its table of " + kind);
    const std::vector<std::string> problems = table_problems(kind, table);
    for (const std::string& problem : problems) report.problem(problem);
    if (!problems.empty()) return false;
    if (kind == ASSAY_KIND_QUANT) report_quant(*static_cast<const assay_quant*>(table), report);
    if (kind == ASSAY_KIND_DEVICE) report_device(*static_cast<const assay_device*>(table), report);
    if (kind == ASSAY_KIND_ATTENTION)
        report_attention(*static_cast<const assay_attention*>(table), report);
    return true;
}

bool open_module(const assay_module& module, const Host& host, const char* stage,
                 const Report& report) {
    report.stage(stage);
    assay_error err = sdk::make_error();
    assay_status status = ASSAY_OK;
    const std::string thrown =
        exception_let_out("open()", [&] { status = module.open(host.abi(), &err); });
    err.text[sizeof err.text - 1] = '\0';
    if (!thrown.empty()) {
        report.problem(thrown);
    } else if (status != ASSAY_OK) {
        report.problem(std::string{stage} + " failed with status " + std::to_string(status) + ": " +
                       (err.text[0] != '\0' ? err.text : "no words given"));
    } else {
        return true;
    }
    return false;
}

bool close_module(const assay_module& module, const Host& host, const Report& report) {
    report.stage("close()");
    std::string problem = exception_let_out("close()", [&] { module.close(); });
    if (problem.empty() && host.memory_bytes() != 0)
        problem = "still holds " + std::to_string(host.memory_bytes()) +
                  " bytes of memory/1 after close()";
    if (!problem.empty()) report.problem(problem);
    return problem.empty();
}

void examine(const char* path, const Report& report) {
    LogQueue log{[](const LogLine& line) { std::fprintf(stderr, "%s\n", line.text.c_str()); }};
    WorkerLanes lanes{{.width = 1}};
    HostServices services;
    services.log = &log;
    services.control_lanes = lanes.abi();

    report.stage("mapping");
    const std::size_t threads_before = num_threads();
    void* const image = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (image == nullptr) {
        const char* const why = dlerror();
        return report.problem("cannot be mapped: " +
                              std::string{why != nullptr ? why : "no reason given"});
    }
    if (num_threads() > threads_before)
        report.problem("starts a thread when it is mapped; work begins in open()");
    const auto* module = static_cast<const assay_module*>(dlsym(image, "assay_module_entry"));
    if (module == nullptr) return report.problem("exports no symbol assay_module_entry");
    if (module->open == nullptr || module->query == nullptr || module->close == nullptr)
        return report.problem("open, query or close is null");

    const Host host{{module->id, strnlen(module->id, sizeof module->id)}, "probe", services};
    if (!open_module(*module, host, "open()", report)) return;
    std::istringstream kinds{
        std::string{module->kinds, strnlen(module->kinds, sizeof module->kinds)}};
    bool fit = true;
    for (std::string kind; kinds >> kind;) fit = check_kind(*module, kind, report) && fit;
    if (!fit || !close_module(*module, host, report)) return;
    if (!open_module(*module, host, "open() after close()", report)) return;
    if (!close_module(*module, host, report)) return;
    report.stage("the end of the process");
}

}  // namespace

int probe_main(const char* path) noexcept {
    confine();
    const Report report;
    examine(path, report);
    report.done();
    return 0;
}

}  // namespace plugin
