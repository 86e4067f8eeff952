// An accidental change of the ABI fails here: sizes and offsets against a golden table, and the
// declarations of every header against a hash of their tokens.

#include "abi/plugin.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

namespace {

/// "name size field:offset ..." by struct name.
std::map<std::string, std::string> layouts() {
    std::map<std::string, std::string> all;
#define F(field) line << " " #field ":" << offsetof(Struct, field);
#define STRUCT(type, fields)                   \
    {                                          \
        using Struct = type;                   \
        std::ostringstream line;               \
        line << #type " " << sizeof(Struct);   \
        fields all.emplace(#type, line.str()); \
    }
#include "abi_structs.inc"
#undef STRUCT
#undef F
    return all;
}

std::string read(const std::string& path) {
    std::ifstream file{path};
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// The text without comments, each run of white space one blank.
std::string tokens(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text.substr(i, 2) == "/*") {
            i = text.find("*/", i) + 1;
            if (!out.empty() && out.back() != ' ') out += ' ';
        } else if (text[i] == ' ' || text[i] == '\n') {
            if (!out.empty() && out.back() != ' ') out += ' ';
        } else {
            out += text[i];
        }
    }
    return out;
}

/// FNV-1a, 64 bits.
std::uint64_t hash(std::string_view text) {
    std::uint64_t h = 0xcbf29ce484222325u;
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return h;
}

/// What abi_golden.txt should hold for the headers as they are.
std::string current() {
    std::ostringstream out;
    for (const char* header : {"common", "loader", "device", "quant", "attention", "plugin"}) {
        char hex[17];
        const std::string path = std::string{ASSAY_SOURCE_DIR} + "/sdk/abi/" + header + ".h";
        std::snprintf(hex, sizeof hex, "%016llx",
                      static_cast<unsigned long long>(hash(tokens(read(path)))));
        out << header << ".h " << hex << '\n';
    }
    for (const auto& [name, line] : layouts()) out << line << '\n';
    return out.str();
}

/// The lines of `a` that are not in `b`.
std::string lines_missing(const std::string& a, const std::string& b) {
    std::istringstream in{a};
    std::string missing;
    for (std::string line; std::getline(in, line);)
        if (('\n' + b).find('\n' + line + '\n') == std::string::npos) missing += line + '\n';
    return missing;
}

// Until 1.0 a plugin and its host must agree exactly, so a change of a declaration is a new
// ASSAY_ABI_MINOR: raise it, and replace tests/sdk/abi_golden.txt by the file named below.
TEST(Abi, DeclarationsSizesAndOffsetsAreTheGoldenOnes) {
    const std::string now = current();
    const std::string golden = read(ASSAY_SOURCE_DIR "/tests/sdk/abi_golden.txt");
    if (now == golden) return SUCCEED();
    const std::string path = ASSAY_BUILD_DIR "/abi_golden.txt";
    std::ofstream{path} << now;
    FAIL() << "golden:\n"
           << lines_missing(golden, now) << "now:\n"
           << lines_missing(now, golden) << "the new table is in " << path;
}

TEST(Abi, TheTableNamesEveryStruct) {
    const auto known = layouts();
    int num_structs = 0;
    for (const char* header : {"common", "loader", "device", "quant", "attention"}) {
        const std::string text =
            tokens(read(std::string{ASSAY_SOURCE_DIR} + "/sdk/abi/" + header + ".h"));
        for (std::size_t at = text.find("struct assay_"); at != std::string::npos;
             at = text.find("struct assay_", at + 1)) {
            const std::size_t begin = at + 7, end = text.find_first_of(" ;", begin);
            if (text.substr(end, 2) != " {") continue;  // a use, not a definition
            ++num_structs;
            EXPECT_TRUE(known.contains(text.substr(begin, end - begin)))
                << text.substr(begin, end - begin);
        }
    }
    EXPECT_EQ(static_cast<std::size_t>(num_structs), known.size());
}

TEST(Abi, SizedStructsBeginWithTheirSize) {
    // Rule 2 of abi/common.h: every struct but these begins with `size`; the module after its
    // magic.
    const std::string_view kFrozen =
        " assay_tensor assay_stream assay_kv_plane assay_sample_row assay_logit_edit assay_option "
        "assay_meta_str assay_module ";
    for (const auto& [name, line] : layouts()) {
        const bool has_size = line.find(" size:0 ") != std::string::npos;
        const bool is_frozen = kFrozen.find(' ' + name + ' ') != std::string_view::npos;
        EXPECT_NE(has_size, is_frozen) << line;
    }
    EXPECT_EQ(offsetof(assay_module, magic), 0u);
    EXPECT_EQ(offsetof(assay_module, size), 4u);
}

TEST(Abi, TheMagicReadsAsText) {
    const std::uint32_t magic = ASSAY_MAGIC;
    char bytes[5] = {};
    for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(magic >> (8 * i));
    EXPECT_STREQ(bytes, "ASY1");
}

TEST(Abi, HasIsFalseForAFieldBeyondTheSizeAndForAnUnsetOne) {
    assay_loader loader{};
    loader.size = offsetof(assay_loader, will_need);  // an older image
    loader.will_need = [](void*, std::uint32_t, std::uint64_t, std::uint64_t) {};
    EXPECT_FALSE(ASSAY_HAS(assay_loader, &loader, will_need));
    loader.size = sizeof loader;
    EXPECT_TRUE(ASSAY_HAS(assay_loader, &loader, will_need));
    loader.will_need = nullptr;
    EXPECT_FALSE(ASSAY_HAS(assay_loader, &loader, will_need));
}

}  // namespace
