// Compares a vocabulary's ids with expected ones; for vocabularies too large for the repository.
//
//   tokenizer_check VOCAB.gguf TEXTS.inp IDS.out
//   tokenizer_check VOCAB.gguf STRINGS.json GOLDEN.json [--no-nfc]
//
// TEXTS.inp holds texts separated by "\n__ggml_vocab_test__\n", IDS.out a line of ids for each.

#include "daemon/text/detokenizer.hpp"
#include "daemon/text/round_trip.hpp"
#include "daemon/text/tokenizer.hpp"
#include "tests/support/gguf_metadata.hpp"

#include <boost/json.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string read_file(const std::string& path) {
    std::ifstream in{path, std::ios::binary};
    if (!in) throw std::runtime_error{path + ": cannot be opened"};
    return {std::istreambuf_iterator<char>{in}, {}};
}

struct Count {
    int passed = 0, failed = 0;
    void add(bool good, const std::string& what) {
        ++(good ? passed : failed);
        if (!good) std::printf("  differs: %s\n", what.c_str());
    }
};

/// A stream shows the same text however its bytes are cut into tokens: token by token, and at
/// every single place.
bool streams_alike(const text::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    std::string bytes, streamed;
    text::Detokenizer detokenizer{tokenizer, {.render_special = true}};
    for (const std::int32_t id : ids) {
        bytes += tokenizer.token_piece(id, true);
        streamed += detokenizer.push(id);
    }
    streamed += detokenizer.flush();
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
        text::Utf8Stream stream;
        std::string joined = stream.push(std::string_view{bytes}.substr(0, cut));
        joined += stream.push(std::string_view{bytes}.substr(cut));
        if (joined + stream.flush() != streamed) return false;
    }
    return true;
}

Count check_pairs(const text::Tokenizer& tokenizer, std::string texts, const std::string& ids) {
    constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
    std::istringstream lines{ids};
    std::string line;
    Count count;
    for (std::size_t at = 0; at <= texts.size() && std::getline(lines, line);) {
        const std::size_t end = std::min(texts.find(kSeparator, at), texts.size());
        const std::string text = texts.substr(at, end - at);
        at = end + kSeparator.size();
        std::istringstream numbers{line};
        std::vector<std::int32_t> expected;
        for (std::int32_t id; numbers >> id;) expected.push_back(id);
        const auto actual = tokenizer.encode(text, {.parse_special = true}).value();
        count.add(actual == expected, text);
        if (!streams_alike(tokenizer, actual)) count.add(false, "stream of " + text);
    }
    return count;
}

std::string unhex(std::string_view hex) {
    std::string out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        out.push_back(static_cast<char>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16)));
    return out;
}

Count check_golden(const text::Tokenizer& tokenizer, const std::string& strings,
                   const std::string& golden, bool nfc) {
    const auto ids_of = [](const boost::json::value& v) {
        return boost::json::value_to<std::vector<std::int32_t>>(v);
    };
    std::map<std::string, std::string> texts;
    const boost::json::value parsed_strings = boost::json::parse(strings);
    for (const auto& s : parsed_strings.at("strings").as_array())
        texts[std::string{s.at("id").as_string()}] = std::string{s.at("text").as_string()};
    const boost::json::value g = boost::json::parse(golden);
    Count count;
    for (const auto& c : g.at("cases").as_array()) {
        const std::string id{c.at("id").as_string()};
        auto expected = ids_of(c.at("ids"));
        const auto actual = tokenizer.encode(texts.at(id), {.parse_special = true}).value();
        bool good = actual == expected;
        // Where other packages differ because of NFC, theirs are the ids wanted with NFC on.
        if (nfc && !good && c.as_object().contains("others")) {
            good = boost::json::serialize(c.at("others"))
                       .find(boost::json::serialize(boost::json::value_from(actual))) !=
                   std::string::npos;
            std::printf("  %s: the other packages' ids: %s\n", id.c_str(), good ? "yes" : "no");
        }
        count.add(good, id);
        if (!streams_alike(tokenizer, actual)) count.add(false, "stream of " + id);
        if (const auto* plain = c.as_object().if_contains("ids_parse_special_false"))
            count.add(tokenizer.encode(texts.at(id)).value() == ids_of(*plain), id + " (plain)");
    }
    for (const auto& p : g.at("pieces").as_array()) {
        text::Detokenizer detokenizer{tokenizer, {.render_special = true}};
        bool good = true;
        const auto ids = ids_of(p.at("ids"));
        for (std::size_t i = 0; i < ids.size(); ++i) {
            good &=
                tokenizer.token_piece(ids[i], true) == unhex(p.at("piece_hex").at(i).as_string());
            good &= detokenizer.push(ids[i]) == p.at("deltas").at(i).as_string();
        }
        good &= detokenizer.flush() == p.at("flush").as_string();
        count.add(good, "pieces of " + std::string{p.at("id").as_string()});
    }
    if (const auto* invalid = g.as_object().if_contains("invalid_utf8"))
        for (const auto& c : invalid->at("cases").as_array())
            if (!c.at("ids").is_null())
                count.add(tokenizer.encode(unhex(c.at("input_hex").as_string())).value() ==
                              ids_of(c.at("ids")),
                          "invalid " + std::string{c.at("input_hex").as_string()});
    return count;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: tokenizer_check VOCAB.gguf TEXTS EXPECTED [--no-nfc]\n");
        return 64;
    }
    using Clock = std::chrono::steady_clock;
    const bool nfc = !(argc > 4 && std::string{argv[4]} == "--no-nfc");
    const base::Metadata metadata = test_support::read_gguf_metadata(argv[1]);
    const auto start = Clock::now();
    const auto tokenizer = text::make_tokenizer(metadata, {.normalize_nfc = nfc});
    const std::chrono::duration<double, std::milli> load = Clock::now() - start;
    const auto probe_start = Clock::now();
    text::check_round_trip(*tokenizer);
    const std::chrono::duration<double, std::milli> probe = Clock::now() - probe_start;
    const std::string texts = read_file(argv[2]), expected = read_file(argv[3]);
    const Count count = std::string_view{argv[3]}.ends_with(".json")
                            ? check_golden(*tokenizer, texts, expected, nfc)
                            : check_pairs(*tokenizer, texts, expected);
    std::printf("%s: %d passed, %d failed (made in %.0f ms, self-test %.2f ms)\n", argv[3],
                count.passed, count.failed, load.count(), probe.count());
    return count.failed == 0 ? 0 : 1;
}
