#include "daemon/app/model_watch.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace app {
namespace {

namespace fs = std::filesystem;

class ModelWatchTest : public testing::Test {
protected:
    ModelWatchTest() {
        std::string name = (fs::temp_directory_path() / "assay-watch-XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        file_ = folder_ / "model.gguf";
        std::ofstream{file_} << std::string(100'000, 'x');
        // So that a write is a change of time whatever the clock's steps are.
        const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
        ::utimensat(AT_FDCWD, file_.c_str(), old, 0);
    }
    ~ModelWatchTest() override { fs::remove_all(folder_); }
    fs::path folder_, file_;
};

TEST_F(ModelWatchTest, SaysWhatWasDoneToTheFile) {
    const ModelWatch watch{{file_.string()}};
    EXPECT_EQ(watch.change(), "");
    std::ofstream{file_, std::ios::app} << "more";
    EXPECT_EQ(watch.change(), file_.string() + " had 100000 bytes and has 100004");
}

TEST_F(ModelWatchTest, NoticesWritingInPlace) {
    const ModelWatch watch{{file_.string()}};
    {
        std::fstream in_place{file_, std::ios::in | std::ios::out};
        in_place << "y";
    }
    EXPECT_EQ(watch.change(), file_.string() + " was written to");
}

TEST_F(ModelWatchTest, AFileThatIsReplacedOrRemovedIsNoConcern) {
    const ModelWatch watch{{file_.string()}};
    const fs::path next = folder_ / "next.gguf";
    std::ofstream{next} << "another model";
    fs::rename(next, file_);
    EXPECT_EQ(watch.change(), "");
    fs::remove(file_);
    EXPECT_EQ(watch.change(), "");
}

using BusErrorDeathTest = ModelWatchTest;

/// Reads a byte of a mapping whose file is cut short meanwhile.
void read_what_is_gone(const fs::path& file) {
    const int fd = ::open(file.c_str(), O_RDWR);
    const auto* bytes = static_cast<const volatile char*>(::mmap(nullptr, 100'000, PROT_READ, MAP_SHARED, fd, 0));
    if (::ftruncate(fd, 0) != 0) ::_exit(1);
    static_cast<void>(bytes[50'000]);
}

TEST_F(BusErrorDeathTest, AModelFileCutShortIsNamedAndExits65) {
    EXPECT_EXIT(
        {
            explain_bus_errors({file_.string()}, -1);
            read_what_is_gone(file_);
        },
        testing::ExitedWithCode(65), "model.gguf: mapped bytes are gone");
}

TEST_F(BusErrorDeathTest, AnyOtherFileIsNamedAndDumpsCore) {
    EXPECT_EXIT(
        {
            explain_bus_errors({"/some/other/model.gguf"}, -1);
            read_what_is_gone(file_);
        },
        testing::KilledBySignal(SIGBUS), "model.gguf: mapped bytes are gone");
}

}  // namespace
}  // namespace app
