// One fuzz target without a fuzzer: every input of its corpus, then a few thousand mutations of
// them. What crashed once does not crash again, with any compiler and sanitizer.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

/// From a buffer of exactly the input's size, so that a sanitizer sees the first byte beyond it.
void run(const std::string& input) {
    const auto exact = std::make_unique<std::uint8_t[]>(input.size());
    std::memcpy(exact.get(), input.data(), input.size());
    EXPECT_EQ(LLVMFuzzerTestOneInput(exact.get(), input.size()), 0);
}

void add(const fs::path& path, std::vector<fs::path>& files) {
    const std::string name = path.filename();
    if (fs::is_directory(path))
        for (const auto& entry : fs::directory_iterator{path}) add(entry.path(), files);
    else if (fs::is_regular_file(path) && name != "README.md" && !name.ends_with(".xz"))
        files.push_back(path);
}

std::vector<std::string> corpus() {
    std::vector<fs::path> files;
    std::string_view rest = FUZZ_CORPUS;
    while (!rest.empty()) {
        const auto colon = std::min(rest.find(':'), rest.size());
        add(std::string{rest.substr(0, colon)}, files);
        rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
    std::sort(files.begin(), files.end());
    std::vector<std::string> inputs{""};
    for (const fs::path& file : files) {
        std::ifstream in{file, std::ios::binary};
        inputs.emplace_back(std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{});
    }
    return inputs;
}

class Mutator {
public:
    Mutator(std::uint32_t seed, const std::vector<std::string>& inputs)
        : random_{seed}, inputs_{inputs} {}

    std::string next() {
        std::string input = inputs_[below(inputs_.size())];
        for (std::size_t n = 1 + below(4); n > 0; --n) mutate(input);
        return input;
    }

private:
    std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

    void mutate(std::string& s) {
        constexpr std::string_view kEdges{"\x00\x01\x7f\x80\xff\"\\{[,=", 11};
        const std::size_t at = below(s.size());
        switch (below(6)) {
            case 0:
                if (!s.empty()) s[at] = static_cast<char>(s[at] ^ (1 << below(8)));
                break;
            case 1:
                if (!s.empty()) s[at] = kEdges[below(kEdges.size())];
                break;
            case 2:
                s.resize(at);
                break;
            case 3:
                s.erase(at, 1 + below(8));
                break;
            case 4:
                s.insert(at, s.substr(below(s.size()), 1 + below(32)));
                break;
            default: {  // the end of another input
                const std::string& other = inputs_[below(inputs_.size())];
                s = s.substr(0, at) + other.substr(below(other.size()));
            }
        }
    }

    std::mt19937 random_;
    const std::vector<std::string>& inputs_;
};

TEST(Corpus, EveryInputHolds) {
    const auto inputs = corpus();
    EXPECT_GT(inputs.size(), 1U) << "the corpus is empty: " FUZZ_CORPUS;
    for (const std::string& input : inputs) run(input);
    std::printf("%zu inputs\n", inputs.size());
}

TEST(Corpus, MutationsHold) {
    constexpr int kNumMutations = 3000;
    const std::uint32_t seed = std::random_device{}();
    std::printf("seed %u\n", seed);  // before the run: a crash leaves no trace
    std::fflush(stdout);
    const auto inputs = corpus();
    Mutator mutator{seed, inputs};
    for (int i = 0; i < kNumMutations; ++i) run(mutator.next());
}

}  // namespace
