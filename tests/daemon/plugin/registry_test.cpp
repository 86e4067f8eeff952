#include "daemon/plugin/registry.hpp"

#include "daemon/plugin/sha256.hpp"
#include "tests/daemon/plugin/support.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;
using plugin::Candidate;
using plugin::Module;
using plugin::Registry;
using support::TempFolder;

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Registry, FindsImagesInTheFolderAndOneLevelBelow) {
    TempFolder folder;
    folder.with({"quant-a"});
    fs::create_directories(folder.path() / "attention/deeper");
    fs::copy_file(support::fixture("attn-full"), folder.path() / "attention/attn-full.so");
    fs::copy_file(support::fixture("quant-b"), folder.path() / "attention/deeper/quant-b.so");
    folder.write("README.md", "not a plugin");
    const Registry registry = support::registry(folder);
    ASSERT_EQ(registry.candidates().size(), 2u) << registry.describe();
    EXPECT_NE(registry.find("quant-a", "quant/1"), nullptr);
    EXPECT_NE(registry.find("attn-full", "attention/1"), nullptr);
    EXPECT_EQ(registry.find("attn-full", "quant/1"), nullptr);
    EXPECT_EQ(registry.ids("quant/1"), std::vector<std::string>{"quant-a"});
    const Candidate& candidate = *registry.find("quant-a", "quant/1");
    EXPECT_EQ(candidate.path, folder.path() / "quant-a.so");
    EXPECT_EQ(candidate.sha256, plugin::sha256_hex(support::read(candidate.path)));
}

TEST(Registry, EachFileKeepsItsReason) {
    TempFolder folder;
    folder.with({"abi-major", "crash-in-open", "bad-magic"});
    folder.write("text.so", "hello");
    folder.write("cut.so", support::read(support::fixture("quant-a")).substr(0, 3000));
    const Registry registry = support::registry(folder);
    EXPECT_EQ(support::reason(registry, "text"), "not an ELF file; a plugin is a shared object");
    EXPECT_TRUE(contains(support::reason(registry, "cut"), "copy it again"));
    EXPECT_TRUE(contains(support::reason(registry, "abi-major"), "built against plugin ABI 9.3"));
    EXPECT_TRUE(contains(support::reason(registry, "crash-in-open"), "crashed in open()"));
    EXPECT_EQ(support::reason(registry, "bad-magic"), "magic 0xdeadbeef, want 0x31595341");
    for (const Candidate& candidate : registry.candidates()) EXPECT_FALSE(candidate.usable());

    const std::string text = registry.describe();
    EXPECT_TRUE(contains(text, "text.so: not an ELF file")) << text;
    EXPECT_TRUE(contains(text, "abi-major.so (\"abi-major\" ): built against")) << text;
    // By the name of the file when the image could not even say its id.
    EXPECT_TRUE(contains(registry.absent_reason("text", "quant/1"), "not an ELF file"));
    EXPECT_TRUE(contains(registry.absent_reason("abi-major", "quant/1"), "ABI 9.3"));
    EXPECT_EQ(registry.absent_reason("nope", "quant/1"), "not found in " + folder.path().string());
}

TEST(Registry, AnIdOfAnotherKindIsNamedAsSuch) {
    TempFolder folder;
    const Registry registry = support::registry(folder.with({"attn-full"}));
    EXPECT_EQ(registry.absent_reason("attn-full", "quant/1"),
              "is no quant/1 plugin; it offers attention/1");
}

TEST(Registry, FoldersThatCannotBeTrustedStopTheStart) {
    TempFolder folder;
    const auto problem = [](const fs::path& path) { return plugin::folder_problem(path); };
    EXPECT_EQ(problem(folder.path()), "");
    EXPECT_TRUE(contains(problem(""), "is the current directory; write an absolute path"));
    EXPECT_TRUE(contains(problem("."), "is the current directory; write an absolute path"));
    EXPECT_TRUE(contains(problem("plugins"), "is relative to the current directory"));
    EXPECT_TRUE(contains(problem(folder.path() / "none"), "No such file or directory"));
    EXPECT_TRUE(contains(problem(folder.write("file", "x")), "is not a folder"));

    const fs::path open = folder.path() / "open", inner = open / "inner";
    fs::create_directories(inner);
    ASSERT_EQ(chmod(open.c_str(), 0777), 0);
    EXPECT_EQ(problem(open), "plugin folder " + open.string() +
                                 " is writable for everyone; run: chmod o-w " + open.string());
    EXPECT_EQ(problem(inner), "plugin folder " + inner.string() + ": its parent " + open.string() +
                                  " is writable for everyone; run: chmod o-w " + open.string());

    Registry::Settings settings = support::settings(open);
    settings.folders.push_back("relative");
    const std::string error = support::config_error([&] { Registry{settings}; });
    EXPECT_TRUE(contains(error, "writable for everyone")) << error;
    EXPECT_TRUE(contains(error, "relative to the current directory")) << error;
    settings.folders.clear();
    EXPECT_TRUE(
        contains(support::config_error([&] { Registry{settings}; }), "set plugins.folders"));
}

TEST(Registry, FilesThatOthersMayWriteAreRefused) {
    TempFolder folder;
    folder.with({"quant-a", "quant-b"});
    const fs::path file = folder.path() / "quant-a.so";
    ASSERT_EQ(chmod(file.c_str(), 0666), 0);
    const Registry registry = support::registry(folder);
    EXPECT_EQ(support::reason(registry, "quant-a"),
              "is writable for everyone; run: chmod o-w " + file.string());
    EXPECT_EQ(support::reason(registry, "quant-b"), "");
}

TEST(Registry, FilesAndFoldersOfAnotherUserAreRefused) {
    if (geteuid() != 0) {  // only root can give a file away; others see the same rule at root's
        EXPECT_EQ(plugin::file_problem("/bin/sh"), "");
        return;
    }
    TempFolder folder;
    folder.with({"quant-a"});
    ASSERT_EQ(chown((folder.path() / "quant-a.so").c_str(), 12345, 12345), 0);
    EXPECT_EQ(support::reason(support::registry(folder), "quant-a"),
              "belongs to user 12345, want root or user 0 who runs the daemon; chown it");
    ASSERT_EQ(chown(folder.path().c_str(), 12345, 12345), 0);
    EXPECT_TRUE(contains(plugin::folder_problem(folder.path()), "belongs to user 12345"));
}

TEST(Registry, LinksAreFollowedIntoTrustedFoldersOnly) {
    TempFolder folder, elsewhere;
    elsewhere.with({"quant-a"});
    fs::create_symlink(elsewhere.path() / "quant-a.so", folder.path() / "linked.so");
    fs::create_symlink(folder.path() / "nothing", folder.path() / "dangling.so");
    {
        const Registry registry = support::registry(folder);
        ASSERT_NE(registry.find("quant-a", "quant/1"), nullptr) << registry.describe();
        EXPECT_EQ(registry.find("quant-a", "quant/1")->path, elsewhere.path() / "quant-a.so");
        EXPECT_TRUE(contains(support::reason(registry, "dangling"), "No such file"));
    }
    ASSERT_EQ(chmod(elsewhere.path().c_str(), 0777), 0);
    const Registry registry = support::registry(folder);
    EXPECT_TRUE(contains(support::reason(registry, "linked"), "is writable for everyone"))
        << registry.describe();
}

TEST(Registry, TwoImagesWithOneIdAreBothRefused) {
    TempFolder folder;
    const Registry registry = support::registry(folder.with({"twin-a", "twin-b", "quant-a"}));
    EXPECT_EQ(registry.find("twin", "quant/1"), nullptr);
    EXPECT_EQ(support::reason(registry, "twin-a"), "id \"twin\" is also that of " +
                                                       (folder.path() / "twin-b.so").string() +
                                                       "; remove one of the two");
    EXPECT_EQ(support::reason(registry, "twin-b"), "id \"twin\" is also that of " +
                                                       (folder.path() / "twin-a.so").string() +
                                                       "; remove one of the two");
    EXPECT_NE(registry.find("quant-a", "quant/1"), nullptr);
    const std::string why = registry.absent_reason("twin", "quant/1");
    EXPECT_TRUE(contains(why, "twin-a.so") && contains(why, "twin-b.so")) << why;
}

TEST(Registry, ACopyOfAnImageIsNoSecondOne) {
    TempFolder folder;
    folder.with({"quant-a"});
    fs::copy_file(support::fixture("quant-a"), folder.path() / "z-copy.so");
    const Registry registry = support::registry(folder);
    ASSERT_NE(registry.find("quant-a", "quant/1"), nullptr) << registry.describe();
    EXPECT_EQ(support::reason(registry, "z-copy"),
              "is a copy of " + (folder.path() / "quant-a.so").string() + ", which is used");
}

TEST(Registry, OpensOnceSharesAndClosesWithTheLastUser) {
    TempFolder folder;
    Registry registry = support::registry(folder.with({"quant-b"}));
    std::shared_ptr<Module> module = registry.open("quant-b", "quant/1");
    EXPECT_EQ(module, registry.open("quant-b", "quant/1"));
    EXPECT_EQ(module->id(), "quant-b");
    EXPECT_EQ(module->version(), "1.0.0");
    EXPECT_EQ(module->build_id(), registry.find("quant-b", "quant/1")->facts.build_id);
    ASSERT_NE(module->table<assay_quant>(), nullptr);
    EXPECT_EQ(module->table<assay_quant>()->num_formats, 2u);
    EXPECT_EQ(module->table<assay_attention>(), nullptr);

    const plugin::Source source = module->source();
    EXPECT_EQ(source.id, "quant-b");
    EXPECT_EQ(source.host, module->host());
    std::weak_ptr<Module> watch = module;
    module.reset();
    EXPECT_FALSE(watch.expired());  // the source still uses it
    // A second registry in the process finds the same open image.
    TempFolder other;
    Registry again = support::registry(other.with({"quant-b"}));
    EXPECT_EQ(again.open("quant-b", "quant/1"), watch.lock());
}

TEST(Registry, ACallerIsToldWhyNothingOpens) {
    TempFolder folder;
    Registry registry = support::registry(folder.with({"crash-in-open"}));
    const std::string error =
        support::config_error([&] { (void)registry.open("crash-in-open", "quant/1"); });
    EXPECT_TRUE(contains(error, "quant plugin \"crash-in-open\": refused: ")) << error;
    EXPECT_TRUE(contains(error, "crashed in open() (signal 11, SIGSEGV)")) << error;
}

TEST(Registry, AFileReplacedAfterMappingIsRefusedWithAdvice) {
    TempFolder folder;
    fs::copy_file(support::fixture("twin-a"), folder.path() / "twin.so");
    Registry registry = support::registry(folder);
    const std::size_t mapped_before = plugin::num_mapped_images();
    std::weak_ptr<Module> watch = registry.open("twin", "quant/1");
    EXPECT_EQ(plugin::num_mapped_images(), mapped_before + 1);
    EXPECT_TRUE(watch.expired());  // closed, and still mapped

    // As a package manager does it: a new file takes the name.
    fs::copy_file(support::fixture("twin-b"), folder.path() / "new");
    fs::rename(folder.path() / "new", folder.path() / "twin.so");
    std::string error = support::config_error([&] { (void)registry.open("twin", "quant/1"); });
    EXPECT_TRUE(contains(error, "replaced after this process mapped it")) << error;
    EXPECT_TRUE(contains(error, "install the new build under a new file name")) << error;
    registry.scan();
    EXPECT_TRUE(contains(support::reason(registry, "twin"), "replaced after this process"));

    // Under a new name the new build is taken beside the old one.
    fs::rename(folder.path() / "twin.so", folder.path() / "twin-2.so");
    registry.scan();
    const auto module = registry.open("twin", "quant/1");
    EXPECT_EQ(module->version(), "2.0.0");
    EXPECT_STREQ(module->entry()->version, "2.0.0");
    EXPECT_EQ(plugin::num_mapped_images(), mapped_before + 2);
}

TEST(Registry, AFileChangedAfterExaminationIsNotMapped) {
    TempFolder folder;
    folder.with({"attn-full"});
    Registry registry = support::registry(folder);
    fs::remove(folder.path() / "attn-full.so");
    fs::copy_file(support::fixture("attn-decode-only"), folder.path() / "attn-full.so");
    const std::string error =
        support::config_error([&] { (void)registry.open("attn-full", "attention/1"); });
    EXPECT_TRUE(contains(error, "changed after it was examined")) << error;
}

TEST(Registry, ARescanOpensOnlyWhatIsNew) {
    TempFolder folder;
    folder.with({"quant-a"});
    Registry::Settings settings = support::settings(folder.path());
    const fs::path count = folder.path() / "count";
    settings.probe_command.argv = {"/bin/sh", "-c",
                                   "echo >> " + count.string() + "; exec " +
                                       support::probe_command().argv[0] + " --probe-plugin \"$0\""};
    Registry registry{settings};
    registry.scan();
    registry.scan();
    EXPECT_EQ(support::read(count), "\n");
    EXPECT_NE(registry.find("quant-a", "quant/1"), nullptr) << registry.describe();
    folder.with({"quant-b"});
    registry.scan();
    EXPECT_EQ(support::read(count), "\n\n");
}

}  // namespace
