#include "daemon/plugin/elf_reader.hpp"

#include "abi/plugin.h"
#include "tests/daemon/plugin/support.hpp"

#include <cstring>
#include <elf.h>
#include <random>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using plugin::ImageFacts;

ImageFacts facts_of(const std::string& bytes) {
    const std::vector<char> exact(bytes.begin(), bytes.end());  // so that an over-read is seen
    return plugin::read_image(std::as_bytes(std::span{exact}));
}

ImageFacts facts_of_fixture(const char* name) {
    return facts_of(support::read(support::fixture(name)));
}

// Where the constant's id stands in the file.
std::size_t id_offset(const std::string& bytes, const std::string& id) {
    const std::string magic{"\x41\x53\x59\x31", 4};
    for (std::size_t at = bytes.find(magic); at != std::string::npos;
         at = bytes.find(magic, at + 1))
        if (bytes.compare(at + offsetof(assay_module, id), id.size() + 1, id + '\0') == 0)
            return at + offsetof(assay_module, id);
    ADD_FAILURE() << "the constant is not in the file";
    return 0;
}

TEST(ElfReader, ReadsTheConstantOfAHealthyImage) {
    const ImageFacts facts = facts_of_fixture("quant-a");
    EXPECT_EQ(facts.problem, "");
    EXPECT_EQ(facts.id, "quant-a");
    EXPECT_EQ(facts.version, "1.0.0");
    EXPECT_EQ(facts.vendor, "tests");
    EXPECT_EQ(facts.build, "g++, for tests");
    EXPECT_EQ(facts.kinds, std::vector<std::string>{"quant/1"});
    EXPECT_EQ(facts.abi_major, ASSAY_ABI_MAJOR);
    EXPECT_EQ(facts.abi_minor, ASSAY_ABI_MINOR);
    EXPECT_EQ(facts.num_exported, 1u);
    EXPECT_EQ(facts.build_id.size(), 40u);  // SHA-1
    EXPECT_EQ(facts.build_id.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(ElfReader, SectionHeadersAreNotNeeded) {
    std::string bytes = support::read(support::fixture("quant-a"));
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    header.e_shoff = 0;
    header.e_shnum = header.e_shstrndx = 0;
    std::memcpy(bytes.data(), &header, sizeof header);
    EXPECT_EQ(facts_of(bytes).problem, "");
    EXPECT_EQ(facts_of(bytes).id, "quant-a");
    EXPECT_EQ(facts_of_fixture("stripped").problem, "");
    EXPECT_EQ(facts_of_fixture("stripped").id, "quant-a");
}

TEST(ElfReader, UnknownKindsBesideAKnownOneAreKept) {
    const ImageFacts facts = facts_of_fixture("newer-kinds");
    EXPECT_EQ(facts.problem, "");
    EXPECT_EQ(facts.kinds, (std::vector<std::string>{"quant/1", "quant/7"}));
}

TEST(ElfReader, SaysWhatIsWrong) {
    EXPECT_EQ(facts_of("").problem, "not an ELF file; a plugin is a shared object");
    EXPECT_EQ(facts_of("#!/bin/sh\necho hello\n").problem,
              "not an ELF file; a plugin is a shared object");
    EXPECT_EQ(facts_of("\x7f"
                       "ELF")
                  .problem,
              "ELF header cut off: the file has 4 bytes; copy it again");
    const ImageFacts major = facts_of_fixture("abi-major");
    EXPECT_EQ(major.problem, "built against plugin ABI 9.3, this daemon has " +
                                 std::to_string(ASSAY_ABI_MAJOR) + "." +
                                 std::to_string(ASSAY_ABI_MINOR) +
                                 "; rebuild the plugin against this daemon's SDK");
    EXPECT_EQ(major.id, "abi-major");
    EXPECT_NE(facts_of_fixture("abi-minor").problem.find("ABI 0.77, this daemon has 0."),
              std::string::npos);
    EXPECT_EQ(facts_of_fixture("bad-magic").problem, "magic 0xdeadbeef, want 0x31595341");
    EXPECT_EQ(facts_of_fixture("no-entry").problem,
              "exports no symbol assay_module_entry (0 others); not an assay plugin, or built "
              "without ASSAY_EXPORT");
    const ImageFacts two = facts_of_fixture("two-exports");
    EXPECT_GE(two.num_exported, 2u);  // a sanitizer adds some of its own
    EXPECT_TRUE(two.problem.starts_with("exports " + std::to_string(two.num_exported) +
                                        " symbols, want assay_module_entry alone"))
        << two.problem;
    EXPECT_EQ(
        facts_of_fixture("unknown-kind").problem,
        "offers unknown kinds alone (codec/1); this daemon knows loader/1, device/1, quant/1, "
        "attention/1");
    EXPECT_EQ(facts_of_fixture("bad-id").problem,
              "id \"Bad Id\", want lower-case letters, digits, '-', '_', '.'");
}

TEST(ElfReader, WrongClassMachineAndType) {
    const std::string healthy = support::read(support::fixture("quant-a"));
    std::string bytes = healthy;
    bytes[EI_CLASS] = ELFCLASS32;
    EXPECT_EQ(facts_of(bytes).problem, "32-bit ELF file, want 64-bit");
    bytes = healthy;
    bytes[EI_DATA] = ELFDATA2MSB;
    EXPECT_EQ(facts_of(bytes).problem, "big-endian ELF file, want little-endian");
    bytes = healthy;
    bytes[offsetof(Elf64_Ehdr, e_machine)] = static_cast<char>(EM_RISCV);
    EXPECT_EQ(facts_of(bytes).problem.substr(0, 36), "built for ELF machine 243, this host");
    bytes = healthy;
    bytes[offsetof(Elf64_Ehdr, e_type)] = ET_EXEC;
    EXPECT_EQ(facts_of(bytes).problem, "ELF type 2, want a shared object (type 3)");
}

TEST(ElfReader, StringsMustBeTerminatedAndPrintable) {
    const std::string healthy = support::read(support::fixture("quant-a"));
    const std::size_t id = id_offset(healthy, "quant-a");
    std::string bytes = healthy;
    bytes.replace(id, sizeof(assay_module::id), sizeof(assay_module::id), 'x');
    EXPECT_EQ(facts_of(bytes).problem, "string `id` is not terminated within its 64 bytes");
    bytes = healthy;
    bytes[id + offsetof(assay_module, vendor) - offsetof(assay_module, id)] = '\x1b';
    EXPECT_EQ(facts_of(bytes).problem, "string `vendor` holds byte 0x1b, want printable ASCII");
    bytes = healthy;
    bytes[id - offsetof(assay_module, id) + offsetof(assay_module, size)] = 16;
    bytes[id - offsetof(assay_module, id) + offsetof(assay_module, size) + 1] = 0;
    EXPECT_EQ(facts_of(bytes).problem.substr(0, 33), "assay_module_entry says 16 bytes ");
}

TEST(ElfReaderProperty, NoPrefixIsAcceptedUntilTheLastMappedByte) {
    const std::string healthy = support::read(support::fixture("quant-a"));
    std::size_t first_accepted = healthy.size();
    for (std::size_t length = 0; length < healthy.size(); length += 37) {
        const bool accepted = facts_of(healthy.substr(0, length)).problem.empty();
        if (accepted) first_accepted = std::min(first_accepted, length);
        ASSERT_EQ(accepted, length >= first_accepted) << "length " << length;
    }
    // The mapped part is a good share of the file; what follows it (sections) is not read.
    EXPECT_GT(first_accepted, 0x1000u);
}

TEST(ElfReaderProperty, AnyBytesAreReadWithoutHarm) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng{seed};
    const std::string healthy = support::read(support::fixture("stripped"));
    const std::size_t id = id_offset(healthy, "quant-a");
    int refused = 0;
    constexpr int kRounds = 3000;
    for (int round = 0; round < kRounds; ++round) {
        std::vector<std::uint8_t> bytes(healthy.begin(), healthy.end());
        // Where the structure is: headers, the dynamic tables at the start, and the constant.
        for (std::uint32_t n = rng() % 8 + 1; n > 0; --n) {
            const std::size_t place = rng() % 4 == 0   ? id - 16 + rng() % sizeof(assay_module)
                                      : rng() % 2 == 0 ? rng() % 0x400
                                                       : rng() % bytes.size();
            const std::uint8_t value = rng() % 3 == 0 ? 0xff : static_cast<std::uint8_t>(rng());
            bytes[std::min(place, bytes.size() - 1)] = value;
        }
        if (rng() % 5 == 0) bytes.resize(rng() % bytes.size());
        bytes.shrink_to_fit();
        ASSERT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
        if (!plugin::read_image(std::as_bytes(std::span{bytes})).problem.empty()) ++refused;
    }
    EXPECT_GT(refused, kRounds / 4);  // the changes do reach what is read
}

}  // namespace
