#include "daemon/text/charsmap.hpp"
#include "daemon/text/tokenizer.hpp"
#include "daemon/text/utf8.hpp"
#include "tests/daemon/text/tiny_vocab.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

namespace {

using Ids = std::vector<std::int32_t>;

/// Lays a charsmap out by the definition: a trie in a double array, first place that fits.
class CharsmapMaker {
public:
    explicit CharsmapMaker(const std::map<std::string, std::string>& rules) {
        units_.resize(1);
        std::vector<std::pair<std::string, std::uint32_t>> keys;
        for (const auto& [from, to] : rules) {
            keys.emplace_back(from, static_cast<std::uint32_t>(replacements_.size()));
            replacements_.append(to).push_back('\0');
        }
        place(0, "", keys);
    }

    [[nodiscard]] std::string blob() const {
        std::string out;
        append(out, static_cast<std::uint32_t>(units_.size() * 4));
        for (const std::uint32_t unit : units_) append(out, unit);
        return out + replacements_;
    }

private:
    static void append(std::string& out, std::uint32_t value) {
        for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
    }

    void place(std::size_t node, const std::string& prefix,
               const std::vector<std::pair<std::string, std::uint32_t>>& keys) {
        std::set<unsigned char> labels;  // 0: a value
        std::uint32_t value = 0;
        for (const auto& [key, offset] : keys) {
            if (!key.starts_with(prefix)) continue;
            if (key == prefix) {
                labels.insert(0);
                value = offset;
            } else {
                labels.insert(static_cast<unsigned char>(key[prefix.size()]));
            }
        }
        std::size_t base = 1;
        const auto target = [&](std::size_t b, unsigned char label) { return node ^ b ^ label; };
        while (std::any_of(labels.begin(), labels.end(),
                           [&](auto l) { return used_.contains(target(base, l)); }))
            ++base;
        for (const auto label : labels) {
            used_.insert(target(base, label));
            units_.resize(std::max(units_.size(), target(base, label) + 1));
        }
        units_[node] |= static_cast<std::uint32_t>(base << 10);
        if (labels.contains(0)) {
            units_[node] |= 1u << 8;
            units_[target(base, 0)] = value | 1u << 31;
        }
        for (const auto label : labels) {
            if (label == 0) continue;
            units_[target(base, label)] |= label;
            place(target(base, label), prefix + static_cast<char>(label), keys);
        }
    }

    std::vector<std::uint32_t> units_;
    std::set<std::size_t> used_{0};
    std::string replacements_;
};

/// <pad>, </s>, <unk>, then `more`.
base::Metadata t5(std::vector<tiny_vocab::Token> more, const std::string& charsmap = "") {
    std::vector<tiny_vocab::Token> tokens{{"<pad>", 3}, {"</s>", 3}, {"<unk>", 2}};
    tokens.insert(tokens.end(), more.begin(), more.end());
    base::Metadata metadata;
    metadata.set("tokenizer.ggml.model", std::string{"t5"});
    tiny_vocab::set_tokens(metadata, tokens);
    std::vector<std::int64_t> bytes;
    for (const char c : charsmap) bytes.push_back(c);  // signed, as some converters write it
    if (!bytes.empty()) metadata.set("tokenizer.ggml.precompiled_charsmap", bytes);
    return metadata;
}

Ids encode(const base::Metadata& metadata, std::string_view text,
           text::EncodeOptions options = {}) {
    return text::make_tokenizer(metadata)->encode(text, options).value();
}

TEST(Charsmap, FindsTheLongestStretch) {
    const text::Charsmap map{
        CharsmapMaker{{{"a", "1"}, {"abc", "2"}, {"\u3000", " "}, {"x", ""}}}.blob()};
    const auto at = [&](std::string_view text) {
        const auto match = map.longest_at(text);
        return std::to_string(match.bytes) + ":" + std::string{match.replacement};
    };
    EXPECT_EQ(at("abcd"), "3:2");
    EXPECT_EQ(at("abd"), "1:1");
    EXPECT_EQ(at("ab"), "1:1");
    EXPECT_EQ(at("\u3000a"), "3: ");
    EXPECT_EQ(at("xa"), "1:");
    EXPECT_EQ(at("b"), "0:");
    EXPECT_EQ(at(""), "0:");
    EXPECT_EQ(text::Charsmap{""}.longest_at("a").bytes, 0u);
}

TEST(Charsmap, RefusesSizesThatDoNotFit) {
    const std::string good = CharsmapMaker{{{"a", "1"}}}.blob();
    EXPECT_NO_THROW(text::Charsmap{good});
    for (const std::string& bad :
         {std::string{"\4"}, good.substr(0, good.size() - 1), good.substr(0, 20),
          std::string{"\3\0\0\0abcd\0", 9}, std::string{"\xFF\xFF\xFF\xFF\0\0\0\0", 8}})
        EXPECT_THROW(text::Charsmap{bad}, base::ModelError) << bad.size();
}

TEST(Charsmap, HostileTriesLeadNowhere) {
    std::mt19937 random{std::random_device{}()};
    for (int round = 0; round < 2000; ++round) {
        std::string blob{"\x40\0\0\0", 4};
        for (int i = 0; i < 64 + 8; ++i) blob.push_back(static_cast<char>(random()));
        blob.push_back('\0');
        const text::Charsmap map{blob};
        for (int c = 0; c < 256; ++c) {
            const std::string text(8, static_cast<char>(c));
            EXPECT_LE(map.longest_at(text).bytes, text.size());
        }
    }
}

TEST(Ugm, TakesTheBestSum) {
    const auto metadata =
        t5({{"a", 1, -1}, {"b", 1, -1}, {"ab", 1, -3}, {"abc", 1, -2.5}, {"c", 1, -1}});
    EXPECT_EQ(encode(metadata, "ab"), (Ids{3, 4}));  // -2 beats -3
    EXPECT_EQ(encode(metadata, "abc"), (Ids{6}));    // -2.5 beats -3
    EXPECT_EQ(encode(metadata, "abc", {.add_special = true}), (Ids{6, 1}));
}

TEST(Ugm, UnknownNeighboursAreOneToken) {
    const auto metadata = t5({{"a", 1, -1}});
    EXPECT_EQ(encode(metadata, "aé中a"), (Ids{3, 2, 3}));
    EXPECT_EQ(encode(metadata, "a\xFF\xFE"), (Ids{3, 2}));
}

TEST(Ugm, TreatsSpacesAsTheKeysSay) {
    base::Metadata metadata = t5({{"▁", 1, -1}, {"a", 1, -1}});
    EXPECT_EQ(encode(metadata, " a  a "), (Ids{3, 4, 3, 3, 4, 3}));
    metadata.set("tokenizer.ggml.remove_extra_whitespaces", true);
    EXPECT_EQ(encode(metadata, " a  a "), (Ids{4, 3, 4}));
    metadata.set("tokenizer.ggml.add_space_prefix", true);
    EXPECT_EQ(encode(metadata, " a  a "), (Ids{3, 4, 3, 4}));
    EXPECT_EQ(encode(metadata, "   "), Ids{});
    metadata.set("tokenizer.ggml.remove_extra_whitespaces", false);
    EXPECT_EQ(encode(metadata, " a"), (Ids{3, 3, 4}));
}

TEST(Ugm, NormalizesThroughTheCharsmap) {
    const auto metadata =
        t5({{"a", 1, -1}, {"▁", 1, -1}, {"fi", 1, -1}},
           CharsmapMaker{{{"Ａ", "a"}, {"ﬁ", "fi"}, {"\u3000", " "}, {"\u00AD", ""}}}.blob());
    EXPECT_EQ(encode(metadata, "Ａ\u3000ﬁ\u00ADa"), (Ids{3, 4, 5, 3}));
    EXPECT_EQ(text::make_tokenizer(metadata)->canonical("Ａ\u3000ﬁ\u00ADa and more of it").value(),
              "a fia and more of it");
}

/// The best sum of scores over all ways to cut the text, by trying them all.
double best_score(const text::Tokenizer& tokenizer, const std::vector<tiny_vocab::Token>& tokens,
                  std::string_view text, double unknown) {
    if (text.empty()) return 0;
    double best = -1e30;
    bool known = false;
    for (const auto& token : tokens)
        if (text.starts_with(token.text)) {
            known |= token.text.size() == 1;
            best =
                std::max(best, token.score + best_score(tokenizer, tokens,
                                                        text.substr(token.text.size()), unknown));
        }
    if (!known)
        best = std::max(best, unknown + best_score(tokenizer, tokens, text.substr(1), unknown));
    return best;
}

TEST(Ugm, IsAsGoodAsTryingAllWays) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random{seed};
    for (int round = 0; round < 300; ++round) {
        std::map<std::string, double> distinct;
        for (int i = 0; i < 12; ++i) {
            std::string text;
            for (std::size_t n = random() % 4 + 1; n > 0; --n)
                text += static_cast<char>('a' + random() % 3);
            distinct[text] = -static_cast<double>(random() % 64) / 4;
        }
        std::vector<tiny_vocab::Token> tokens;
        double lowest = 0;
        for (const auto& [text, score] : distinct) {
            tokens.push_back({text, 1, score});
            lowest = std::min(lowest, score);
        }
        const auto tokenizer = text::make_tokenizer(t5(tokens));
        std::string text;
        for (std::size_t n = random() % 10; n > 0; --n)
            text += static_cast<char>('a' + random() % 3);
        double score = 0;
        std::size_t at = 0;  // unknown tokens stand for as many characters as are left to explain
        const Ids ids = tokenizer->encode(text).value();
        for (std::size_t i = 0; i < ids.size(); ++i) {
            if (ids[i] != 2) {
                score += tokens[static_cast<std::size_t>(ids[i] - 3)].score;
                at += tokens[static_cast<std::size_t>(ids[i] - 3)].text.size();
                continue;
            }
            std::string rest;
            for (std::size_t k = i + 1; k < ids.size() && ids[k] != 2; ++k)
                rest += tokens[static_cast<std::size_t>(ids[k] - 3)].text;
            const bool last =
                std::count(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1, ids.end(), 2) == 0;
            if (!last) {
                at = text.size() + 1;  // ambiguous: only the sum of several runs is known
                break;
            }
            const std::size_t run = text.size() - at - rest.size();
            score += static_cast<double>(run) * (lowest - 10);
            at += run;
        }
        if (at > text.size()) continue;
        EXPECT_EQ(at, text.size());
        EXPECT_DOUBLE_EQ(score, best_score(*tokenizer, tokens, text, lowest - 10)) << text;
    }
}

}  // namespace
