// From the file's types to the ABI's.

#include "plugins/loader/gguf/metadata.hpp"

#include "support.hpp"
#include "tests/support/gguf_writer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace {

using test_support::GgufWriter;

struct Table {
    explicit Table(const GgufWriter& writer) : file{writer.bytes()} {}
    std::string file;
    gguf::Header header = loader_test::parse(file);
    gguf::MetadataTable table{header, "m.gguf"};
};

template <class T>
void expect_int(T value) {
    const Table t{GgufWriter{}.value("k", value)};
    const assay_meta& entry = t.table.entry(0);
    EXPECT_STREQ(entry.key, "k");
    ASSERT_EQ(entry.type, ASSAY_META_I64);
    EXPECT_EQ(entry.count, 1u);
    EXPECT_EQ(*static_cast<const std::int64_t*>(entry.data), static_cast<std::int64_t>(value));
}

template <class T>
void expect_limits() {
    expect_int(std::numeric_limits<T>::min());
    expect_int(std::numeric_limits<T>::max());
}

TEST(GgufMetadata, IntegersOfEveryWidthBecomeInt64) {
    expect_limits<std::uint8_t>();
    expect_limits<std::int8_t>();
    expect_limits<std::uint16_t>();
    expect_limits<std::int16_t>();
    expect_limits<std::uint32_t>();
    expect_limits<std::int32_t>();
    expect_limits<std::int64_t>();
    expect_int(std::uint64_t{INT64_MAX});
}

TEST(GgufMetadata, IntegersBeyondInt64AreNotHeld) {
    const Table t{GgufWriter{}
                      .value("scalar", std::uint64_t{1} << 63)
                      .array<std::uint64_t>("array", {1, UINT64_MAX})
                      .value("good", std::uint64_t{7})};
    EXPECT_FALSE(t.table.holds(0));
    EXPECT_FALSE(t.table.holds(1));
    EXPECT_TRUE(t.table.holds(2));
    EXPECT_STREQ(t.table.entry(1).key, "array");
    EXPECT_EQ(t.table.entry(1).data, nullptr);
}

TEST(GgufMetadata, FloatsBecomeDoubles) {
    const Table t{GgufWriter{}.value("f", 0.1f).value("d", 0.1).array<float>("a", {-1.5f, 3e38f})};
    EXPECT_EQ(t.table.entry(0).type, ASSAY_META_F64);
    EXPECT_EQ(*static_cast<const double*>(t.table.entry(0).data), static_cast<double>(0.1f));
    EXPECT_EQ(*static_cast<const double*>(t.table.entry(1).data), 0.1);
    const assay_meta& array = t.table.entry(2);
    EXPECT_EQ(array.type, ASSAY_META_ARRAY);
    EXPECT_EQ(array.item_type, ASSAY_META_F64);
    ASSERT_EQ(array.count, 2u);
    EXPECT_EQ(static_cast<const double*>(array.data)[0], -1.5);
    EXPECT_EQ(static_cast<const double*>(array.data)[1], static_cast<double>(3e38f));
}

TEST(GgufMetadata, StringsAreBytesWithALength) {
    const std::string odd{"nul \0 and \xff", 11};
    const Table t{GgufWriter{}.string("s", odd).string("empty", "")};
    const assay_meta& entry = t.table.entry(0);
    EXPECT_EQ(entry.type, ASSAY_META_STR);
    EXPECT_EQ((std::string_view{static_cast<const char*>(entry.data), entry.count}), odd);
    EXPECT_EQ(t.table.entry(1).type, ASSAY_META_STR);
    EXPECT_EQ(t.table.entry(1).count, 0u);
}

TEST(GgufMetadata, ArraysKeepTheirItems) {
    const std::vector<std::string> strings{"", "a", std::string(1000, 'x'), "\xc3\xa9"};
    const Table t{GgufWriter{}
                      .array<std::int16_t>("ints", {-1, 0, 32767})
                      .strings("strings", strings)
                      .array<bool>("bools", {true, false, true})
                      .array<double>("none", {})
                      .value("flag", true)};
    const assay_meta& ints = t.table.entry(0);
    EXPECT_EQ(ints.item_type, ASSAY_META_I64);
    ASSERT_EQ(ints.count, 3u);
    EXPECT_EQ(static_cast<const std::int64_t*>(ints.data)[0], -1);
    EXPECT_EQ(static_cast<const std::int64_t*>(ints.data)[2], 32767);

    const assay_meta& texts = t.table.entry(1);
    EXPECT_EQ(texts.item_type, ASSAY_META_STR);
    ASSERT_EQ(texts.count, strings.size());
    for (std::size_t i = 0; i < strings.size(); ++i) {
        const auto& item = static_cast<const assay_meta_str*>(texts.data)[i];
        EXPECT_EQ((std::string_view{item.data, item.bytes}), strings[i]);
    }

    const assay_meta& bools = t.table.entry(2);
    EXPECT_EQ(bools.type, ASSAY_META_ARRAY);
    EXPECT_EQ(bools.item_type, ASSAY_META_BOOL);
    ASSERT_EQ(bools.count, 3u);
    EXPECT_EQ(static_cast<const std::uint8_t*>(bools.data)[1], 0);
    EXPECT_EQ(static_cast<const std::uint8_t*>(bools.data)[2], 1);

    EXPECT_EQ(t.table.entry(3).type, ASSAY_META_ARRAY);
    EXPECT_EQ(t.table.entry(3).item_type, ASSAY_META_F64);
    EXPECT_EQ(t.table.entry(3).count, 0u);
    EXPECT_EQ(t.table.entry(4).type, ASSAY_META_BOOL);
    EXPECT_EQ(*static_cast<const std::uint8_t*>(t.table.entry(4).data), 1);
}

}  // namespace
