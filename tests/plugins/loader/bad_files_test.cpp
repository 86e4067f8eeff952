// The golden set of malformed files against its manifest: what must be refused is refused in words
// that name the defect, what must load loads, and neither costs more than the file suggests.

#include "module.hpp"
#include "plugins/loader/gguf/conventions.hpp"
#include "plugins/loader/gguf/metadata.hpp"
#include "support.hpp"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace {

using loader_test::OpenedModel;

struct Row {
    std::string file, layer, expect, reason, note;
};

std::vector<Row> manifest() {
    const auto root =
        boost::json::parse(loader_test::read_file(loader_test::bad_folder() / "manifest.json"));
    std::vector<Row> rows;
    for (const auto& item : root.at("files").as_array()) {
        Row row;
        row.file = item.at("file").as_string();
        row.layer = item.at("layer").as_string();
        row.expect = item.at("expect").as_string();
        row.note = item.at("note").as_string();
        if (const auto colon = row.expect.find(": "); colon != std::string::npos) {
            row.reason = row.expect.substr(colon + 2);
            row.expect = row.expect.substr(0, colon);
        }
        rows.push_back(row);
    }
    return rows;
}

/// What a refusal for a reason of the manifest may say. A reader may meet another defect of the
/// same file first; such words are listed with it.
const std::map<std::string, std::vector<std::string>> kWords{
    {"array_too_long", {"array too long", "file ends inside the array"}},
    {"bad_alignment", {"bad alignment"}},
    {"bad_alignment_type", {"wrong type of alignment"}},
    {"bad_array_length", {"wrong array length"}},
    {"bad_array_type", {"unknown array item type", "wrong type"}},
    {"bad_charsmap", {"character map shorter"}},
    {"bad_hyperparameter", {"bad value"}},
    {"bad_magic", {"wrong magic"}},
    {"bad_merge", {"bad merge"}},
    {"bad_metadata_type", {"wrong type", "bad split value"}},
    {"bad_offset", {"misaligned offset"}},
    {"bad_split",
     {"bad split", "split.no", "split.count", "split.tensors.count", "duplicate tensor"}},
    {"bad_tensor_info", {"size overflow"}},
    {"bad_tensor_type", {"unknown tensor type"}},
    {"bad_token_id", {"token id outside the vocabulary"}},
    {"bad_value_type", {"unknown value type"}},
    {"count_too_large", {"count too large"}},
    {"data_out_of_range",
     {"past the end of the file", "larger than the file", "before the tensor data"}},
    {"dimension_too_large", {"dimension too large"}},
    {"duplicate_key", {"duplicate key"}},
    {"duplicate_tensor", {"duplicate tensor"}},
    {"empty_key", {"empty key"}},
    {"empty_tensor_name", {"empty tensor name"}},
    {"invalid_key", {"invalid key"}},
    {"invalid_tensor_name", {"invalid tensor name"}},
    {"missing_architecture", {"general.architecture\" is missing"}},
    {"missing_shard", {"parts are missing"}},
    {"nested_array", {"nested array"}},
    {"overlap", {"overlap"}},
    {"row_not_multiple_of_block", {"row is not a multiple of the block"}},
    {"size_overflow", {"size overflow", "larger than the file"}},
    {"string_too_long", {"too long", "metadata count too large: the file has room for 0"}},
    {"tensor_name_too_long", {"tensor name too long"}},
    {"too_many_dims", {"too many dimensions"}},
    {"truncated_header", {"file ends inside the header"}},
    {"truncated_kv", {"file ends inside", "metadata count too large: the file has room for 0"}},
    {"truncated_tensor_info", {"file ends inside"}},
    {"unsupported_version", {"unsupported version"}},
    {"wrong_endianness", {"wrong endianness"}},
    {"zero_dimension", {"zero dimension"}},
};

bool says(const std::string& words, const std::string& reason) {
    for (const std::string& phrase : kWords.at(reason))
        if (words.find(phrase) != std::string::npos) return true;
    return false;
}

bool is_model_without_architecture(const std::string& content) {
    return content.find("general.architecture") == std::string::npos;
}

TEST(GgufBadFiles, ManifestIsWhole) {
    std::map<std::string, int> count;
    for (const Row& row : manifest()) ++count[row.expect];
    EXPECT_EQ(count, (std::map<std::string, int>{{"accept", 18}, {"either", 13}, {"reject", 136}}));
}

TEST(GgufBadFiles, ParserRefusesWhatTheContainerForbids) {
    for (const Row& row : manifest()) {
        SCOPED_TRACE(row.file + ": " + row.note);
        const std::string content = loader_test::read_file(loader_test::bad_folder() / row.file);
        const std::string words = loader_test::parse_refusal(content);
        if (row.layer == "model" || row.expect == "accept") {
            EXPECT_EQ(words, "");
        } else if (row.expect == "reject") {
            EXPECT_TRUE(says(words, row.reason)) << row.reason << ": " << words;
            EXPECT_TRUE(words.starts_with("test.gguf: ")) << words;
            EXPECT_NE(words.find(" at byte "), std::string::npos) << words;
        }
    }
}

TEST(GgufBadFiles, LoaderRefusesWhatAModelMayNotBe) {
    int refused = 0;
    for (const Row& row : manifest()) {
        if (row.expect != "reject") continue;
        // Which architectures exist is known to the model code; here the name is only well-formed.
        if (row.reason == "unknown_architecture") continue;
        SCOPED_TRACE(row.file + ": " + row.note);
        const OpenedModel model{(loader_test::bad_folder() / row.file).string()};
        EXPECT_FALSE(model.ok());
        EXPECT_EQ(model.handle(), nullptr);
        EXPECT_EQ(model.status(), row.reason == "missing_shard" ? ASSAY_IO : ASSAY_CORRUPT);
        EXPECT_TRUE(says(model.words(), row.reason)) << row.reason << ": " << model.words();
        EXPECT_TRUE(model.words().starts_with(row.file.substr(0, row.file.find('-'))))
            << "no file name: " << model.words();
        ++refused;
    }
    EXPECT_EQ(refused, 135);
}

TEST(GgufBadFiles, LoaderTakesWhatIsValid) {
    int loaded = 0;
    for (const Row& row : manifest()) {
        if (row.expect != "accept") continue;
        SCOPED_TRACE(row.file + ": " + row.note);
        const auto path = loader_test::bad_folder() / row.file;
        const OpenedModel model{path.string()};
        if (is_model_without_architecture(loader_test::read_file(path)) &&
            row.file.find("split") == std::string::npos) {
            EXPECT_TRUE(says(model.words(), "missing_architecture")) << model.words();
            continue;
        }
        EXPECT_TRUE(model.ok()) << model.words();
        ++loaded;
    }
    EXPECT_GE(loaded, 14);
}

TEST(GgufBadFiles, UnknownArchitectureIsHandedOverAsItIs) {
    const OpenedModel model{(loader_test::bad_folder() / "arch_unknown.gguf").string()};
    ASSERT_TRUE(model.ok()) << model.words();
    const assay_meta arch = model.meta("general.architecture");
    ASSERT_EQ(arch.type, ASSAY_META_STR);
    EXPECT_GT(arch.count, 0u);
}

}  // namespace
