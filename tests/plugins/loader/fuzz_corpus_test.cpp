// Every input of the corpus through the fuzz target, in every build: what crashed once does not
// crash again, with any compiler.

#include "support.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

int replay_folder(const std::filesystem::path& folder) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator{folder}) {
        SCOPED_TRACE(entry.path());
        const std::string content = loader_test::read_file(entry.path());
        const auto exact = std::make_unique<std::uint8_t[]>(content.size());
        std::memcpy(exact.get(), content.data(), content.size());
        EXPECT_EQ(LLVMFuzzerTestOneInput(exact.get(), content.size()), 0);
        ++files;
    }
    return files;
}

TEST(GgufFuzzCorpus, MalformedFilesOfTheGoldenSet) {
    EXPECT_GE(replay_folder(loader_test::bad_folder()), 167);
}

TEST(GgufFuzzCorpus, InputsThatAFuzzerFound) {
    EXPECT_GE(replay_folder(std::filesystem::path{ASSAY_BUILD_DIR} / "goldens" / "gguf-fuzz"), 185);
}

/// Inputs that crashed once lie beside the archive, each as a file.
TEST(GgufFuzzCorpus, InputsThatCrashedOnce) {
    EXPECT_GE(replay_folder(std::filesystem::path{ASSAY_SOURCE_DIR} / "tests" / "fuzz" / "gguf"),
              2);
}

}  // namespace
