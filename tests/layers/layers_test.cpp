#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

struct Layer {
    std::string_view folder;
    std::string_view may_include;  // space-separated; itself is implied
};

constexpr Layer kLayers[] = {
    {"sdk", ""},
    {"sdk/abi", ""},
    {"plugins", "sdk"},
    {"daemon/base", ""},
    {"daemon/config", "daemon/base"},
    {"daemon/metrics", "daemon/base"},
    {"daemon/text", "daemon/base"},
    {"daemon/plugin", "sdk daemon/base daemon/metrics"},
    {"daemon/model", "sdk daemon/base daemon/plugin"},
    {"daemon/engine", "sdk daemon/base daemon/metrics daemon/plugin daemon/model"},
    {"daemon/assay", "sdk daemon/base daemon/metrics daemon/plugin daemon/model daemon/text"},
    {"daemon/server", "daemon/base daemon/metrics daemon/text"},
    {"daemon/app",
     "sdk daemon/base daemon/config daemon/metrics daemon/text daemon/plugin daemon/model "
     "daemon/engine daemon/assay daemon/server"},
    // assayctl, which also rewrites model files: the loader's own library knows their format.
    {"daemon/app/cli",
     "sdk daemon/base daemon/config daemon/metrics daemon/text daemon/plugin daemon/model "
     "daemon/engine daemon/assay daemon/server daemon/app plugins/loader/gguf"},
};

bool lies_below(std::string_view path, std::string_view folder) {
    return path.starts_with(folder) &&
           (path.size() == folder.size() || path[folder.size()] == '/');
}

/// The most specific layer that a path belongs to; null when the table has none.
const Layer* layer_of(std::string_view path) {
    const Layer* best = nullptr;
    for (const Layer& layer : kLayers) {
        if (!lies_below(path, layer.folder)) continue;
        if (best == nullptr || layer.folder.size() > best->folder.size()) best = &layer;
    }
    return best;
}

bool may_include(const Layer& from, std::string_view path) {
    if (lies_below(path, from.folder)) return true;
    for (std::string_view rest = from.may_include; !rest.empty();) {
        const auto space = rest.find(' ');
        if (lies_below(path, rest.substr(0, space))) return true;
        rest = space == std::string_view::npos ? "" : rest.substr(space + 1);
    }
    return false;
}

bool is_source(const fs::path& file) {
    constexpr std::string_view kEndings[] = {".c", ".h", ".cpp", ".hpp", ".inc", ".cu", ".cuh"};
    return std::ranges::find(kEndings, file.extension().string()) != std::end(kEndings);
}

/// The file of ours that an include means, relative to the root; empty when it is none.
std::string included_file(const fs::path& root, const fs::path& including, const std::string& name,
                          bool is_quoted) {
    std::vector<fs::path> folders{root, root / "sdk"};
    if (is_quoted) folders.insert(folders.begin(), including.parent_path());
    for (const fs::path& folder : folders) {
        const fs::path candidate = (folder / name).lexically_normal();
        if (fs::exists(candidate)) return candidate.lexically_relative(root).generic_string();
    }
    return {};
}

/// What is wrong with one file's includes, as "file:line: …".
void check_file(const fs::path& root, const fs::path& file, std::vector<std::string>& wrong) {
    static const std::regex kInclude{R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])"};
    static const std::regex kVendor{R"(^(cuda|cublas|cudnn|nccl|hip|rocblas)[^/]*\.h(pp)?$)"};
    const std::string path = file.lexically_relative(root).generic_string();
    const Layer* layer = layer_of(path);
    if (layer == nullptr) {
        wrong.push_back(path + ": lies in no layer of the table");
        return;
    }
    std::ifstream stream{file};
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
        std::smatch match;
        if (!std::regex_search(line, match, kInclude)) continue;
        const std::string name = match[2];
        const bool is_quoted = match[1] == "\"";
        const std::string where = path + ':' + std::to_string(number) + ": ";
        const std::string target = included_file(root, file, name, is_quoted);
        if (target.empty() && is_quoted) {
            wrong.push_back(where + "no file \"" + name + '"');
        } else if (!target.empty() && !may_include(*layer, target)) {
            wrong.push_back(where + std::string{layer->folder} + " may not include " + target);
        } else if (std::regex_search(name, kVendor) && path.find("/cuda") == std::string::npos) {
            wrong.push_back(where + "a vendor's header <" + name + "> outside a folder cuda*");
        }
    }
}

std::vector<std::string> violations(const fs::path& root, int* num_files = nullptr) {
    std::vector<std::string> wrong;
    for (const char* top : {"sdk", "plugins", "daemon"}) {
        for (const auto& entry : fs::recursive_directory_iterator{root / top}) {
            if (!entry.is_regular_file() || !is_source(entry.path())) continue;
            check_file(root, entry.path(), wrong);
            if (num_files != nullptr) ++*num_files;
        }
    }
    std::ranges::sort(wrong);
    return wrong;
}

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + '\n';
    return text;
}

TEST(Layers, EveryIncludeFollowsTheTable) {
    int num_files = 0;
    EXPECT_EQ(joined(violations(ASSAY_SOURCE_DIR, &num_files)), "");
    EXPECT_GT(num_files, 20);
}

/// A small tree in which each kind of violation occurs once.
class WrongTree : public testing::Test {
protected:
    void SetUp() override {
        for (const char* top : {"sdk", "plugins", "daemon"}) fs::create_directories(root_ / top);
    }
    void TearDown() override { fs::remove_all(root_); }

    void write(const std::string& file, const std::string& text) {
        fs::create_directories((root_ / file).parent_path());
        std::ofstream{root_ / file} << text;
    }

    const fs::path root_ = fs::path{testing::TempDir()} / "layers_test_tree";
};

TEST_F(WrongTree, EachViolationIsNamed) {
    write("sdk/abi/plugin.h", "#include <stdint.h>\n");
    write("sdk/abi/bad.h", "#include \"cxx/plugin.hpp\"\n");
    write("sdk/cxx/plugin.hpp", "#include \"abi/plugin.h\"\n");
    write("plugins/quant/x/a.cpp",
          "#include \"cxx/plugin.hpp\"\n#include \"a.hpp\"\n  #  include \"daemon/base/b.hpp\"\n");
    write("plugins/quant/x/a.hpp", "#include <cuda_runtime.h>\n");
    write("plugins/quant/cuda-x/a.cu", "#include <cuda_runtime.h>\n");
    write("daemon/base/b.hpp", "#include <vector>\n");
    write("daemon/server/s.cpp", "#include \"daemon/base/b.hpp\"\n#include \"daemon/engine/e.hpp\"\n");
    write("daemon/engine/e.hpp", "#include <sdk/abi/plugin.h>\n#include \"gone.hpp\"\n");
    write("daemon/text/t.cpp", "#include \"../config/c.hpp\"\n");
    write("daemon/config/c.hpp", "// #include \"daemon/text/t.hpp\"\n");
    write("daemon/else/f.cpp", "");
    EXPECT_EQ(joined(violations(root_)),
              "daemon/else/f.cpp: lies in no layer of the table\n"
              "daemon/engine/e.hpp:2: no file \"gone.hpp\"\n"
              "daemon/server/s.cpp:2: daemon/server may not include daemon/engine/e.hpp\n"
              "daemon/text/t.cpp:1: daemon/text may not include daemon/config/c.hpp\n"
              "plugins/quant/x/a.cpp:3: plugins may not include daemon/base/b.hpp\n"
              "plugins/quant/x/a.hpp:1: a vendor's header <cuda_runtime.h> outside a folder cuda*\n"
              "sdk/abi/bad.h:1: sdk/abi may not include sdk/cxx/plugin.hpp\n");
}

// Written while configuring: "<target> <needed target> <source folder of it>".
TEST(Links, DaemonLinksNoPluginAndPluginsLinkNoDaemon) {
    std::ifstream closure{std::string{ASSAY_BUILD_DIR} + "/link_closure.txt"};
    std::string target, needed, folder;
    std::vector<std::string> daemon_targets, plugin_targets, wrong;
    while (closure >> target >> needed >> folder) {
        const bool is_of_daemon = lies_below(folder, "daemon");
        const bool is_of_plugins = lies_below(folder, "plugins");
        if (target == needed) {  // the first line of each target
            if (is_of_daemon) daemon_targets.push_back(target);
            if (is_of_plugins) plugin_targets.push_back(target);
            continue;
        }
        const bool is_daemon = std::ranges::find(daemon_targets, target) != daemon_targets.end();
        const bool is_rewriter = target == "assayctl" && needed == "gguf_core";
        if (is_daemon && is_of_plugins && !is_rewriter) wrong.push_back(target + " links the plugin code " + needed);
        if (!is_daemon && is_of_daemon) wrong.push_back(target + " links the daemon's " + needed);
    }
    EXPECT_EQ(joined(wrong), "");
    EXPECT_GT(daemon_targets.size(), 3U);
    EXPECT_GT(plugin_targets.size(), 1U);
}

}  // namespace
