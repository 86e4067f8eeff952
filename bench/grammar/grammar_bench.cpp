// What a mask costs, and what it costs to compile a schema, at a vocabulary of 150,000 tokens.
//
// The vocabulary is made up: the 256 bytes, then words with and without a leading space, runs of
// digits and spaces, punctuation as JSON and code join it, and pieces of characters, all distinct.
// The limit of a mask is to write it: a memset and a memcpy of its words, printed beside it.

#include "daemon/text/grammar/compile.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kVocabSize = 150'000;

double microseconds(Clock::duration d) {
    return std::chrono::duration<double, std::micro>(d).count();
}

std::shared_ptr<const grammar::TokenTable> make_vocabulary() {
    std::mt19937_64 rng{20'260'101};
    const auto draw = [&rng](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
    const std::string_view kLetters = "etaoinshrdlucmfwypvbgkjqxzETAOINSHRDLUCM";
    const std::string_view kMarks[] = {"\"", "\",", "\":", "\": ", "\", \"", "{\"", "\"}", "}",
                                       "},", "]",   "],",  ",",    ".",      ":",   ";",   "(",
                                       ")",  "\\",  "\\n", "/",    "-",      "_",   "<",   ">",
                                       "=",  "'",   "\n",  "\n\n", "\t"};
    const std::string_view kWide[] = {"\xC3\xA9", "\xC3",     "\xE4\xB8\xAD", "\xE4\xB8", "\xE5",
                                      "\x83\x8F", "\xD0\xB0", "\xF0\x9F",     "\x98\x80"};
    const auto word = [&] {
        std::string out;
        for (std::size_t n = 1 + draw(9); n > 0; --n)
            out += kLetters[std::min(draw(kLetters.size()), draw(kLetters.size()))];
        return out;
    };
    grammar::TokenSource source;
    std::set<std::string> known;
    const auto add = [&](std::string piece) {
        if (source.pieces.size() + 1 < kVocabSize && known.insert(piece).second)
            source.pieces.push_back(std::move(piece));
    };
    for (unsigned byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    for (int i = 0; i < 1000; ++i) add(std::to_string(i));
    for (std::size_t n = 2; n < 64; ++n) add(std::string(n, ' '));
    while (source.pieces.size() + 1 < kVocabSize) {
        switch (draw(16)) {
            case 0:
                add(word() + std::string{kMarks[draw(std::size(kMarks))]});
                break;
            case 1:
                add(std::string{kMarks[draw(std::size(kMarks))]} + word());
                break;
            case 2:
                add(std::string{kMarks[draw(std::size(kMarks))]} +
                    std::string{kMarks[draw(std::size(kMarks))]});
                break;
            case 3:
                add(std::string{kWide[draw(std::size(kWide))]} +
                    std::string{kWide[draw(std::size(kWide))]} +
                    std::string{kWide[draw(std::size(kWide))]});
                break;
            case 4:
            case 5:
            case 6:
            case 7:
            case 8:
                add(word());
                break;
            default:
                add(' ' + word());
        }
    }
    source.eog = {static_cast<std::int32_t>(source.pieces.size())};
    source.pieces.emplace_back();
    return std::make_shared<const grammar::TokenTable>(std::move(source));
}

/// Time that this thread has run: compiling takes long enough to be interrupted.
double thread_microseconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct Case {
    const char* name;
    base::OutputRules rules;
    std::string text;  // that the grammar takes, from its beginning
};

Case schema_case(const char* name, std::string schema, std::string text) {
    Case out{name, {}, std::move(text)};
    out.rules.form = base::OutputRules::Form::json_schema;
    out.rules.schema = std::move(schema);
    return out;
}

std::vector<Case> cases() {
    std::vector<Case> out;
    Case any{
        "any object",
        {},
        R"({"name": "Ada Lovelace", "born": 1815, "tags": ["first", {"deep": [1.5, null, "x\ny"]}], "ok": true})"};
    any.rules.form = base::OutputRules::Form::json_object;
    out.push_back(any);
    out.push_back(schema_case(
        "record",
        R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},"email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"type":"string","maxLength":20},"maxItems":5},"kind":{"enum":["person","company","other"]}},"required":["name","age","email","tags","kind"],"additionalProperties":false})",
        R"({"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["mathematics", "engines"], "kind": "person"})"));
    std::string wide = R"({"type":"object","properties":{)", text = "{";
    for (int i = 0; i < 60; ++i) {
        const std::string name = "field_" + std::to_string(i);
        wide +=
            (i > 0 ? ",\"" : "\"") + name + R"(":{"anyOf":[{"type":"string"},{"type":"null"}]})";
        if (i % 3 == 0) text += (i > 0 ? ", \"" : "\"") + name + "\": \"some words\"";
    }
    out.push_back(schema_case("60 optional members", wide + "}}", text + "}"));
    out.push_back(schema_case(
        "recursive union",
        R"({"$defs":{"e":{"anyOf":[{"type":"object","properties":{"op":{"const":"add"},"l":{"$ref":"#/$defs/e"},"r":{"$ref":"#/$defs/e"}},"required":["op","l","r"]},{"type":"object","properties":{"op":{"const":"num"},"v":{"type":"number"}},"required":["op","v"]}]}},"$ref":"#/$defs/e"})",
        R"({"op": "add", "l": {"op": "num", "v": 12.5}, "r": {"op": "add", "l": {"op": "num", "v": 1}, "r": {"op": "num", "v": -2}}})"));
    out.push_back(schema_case(
        "pattern", R"({"type":"string","pattern":"^[A-Za-z ]{1,40}(?:, [A-Za-z ]{1,40})*$"})",
        R"("some words, and more of them, and more")"));
    return out;
}

double percentile(std::vector<double> of, double p) {
    std::ranges::sort(of);
    return of[static_cast<std::size_t>(p * static_cast<double>(of.size() - 1))];
}

/// Masks along a text, cut into the longest tokens that there are. Of each place the median of 20
/// rounds.
void measure_masks(const Case& one, const std::shared_ptr<const grammar::TokenTable>& tokens) {
    std::vector<double> compile_us;
    std::shared_ptr<const grammar::Compiled> rules;
    for (int i = 0; i < 5; ++i) {
        const double begin = thread_microseconds();
        auto outcome = grammar::compile(one.rules, {}, tokens);
        compile_us.push_back(thread_microseconds() - begin);
        if (const auto* refusal = std::get_if<grammar::Refusal>(&outcome)) {
            std::printf("%-20s refused: %s\n", one.name, refusal->message.c_str());
            return;
        }
        rules = std::get<0>(outcome);
    }
    std::vector<std::uint32_t> bits(grammar::num_words(tokens->vocab_size()));
    std::vector<std::vector<double>> allow_us, accept_us;  // [place in the text][round]
    const auto note = [](std::vector<std::vector<double>>& of, std::size_t place,
                         Clock::duration d) {
        if (of.size() <= place) of.resize(place + 1);
        of[place].push_back(microseconds(d));
    };
    for (int round = 0; round < 20; ++round) {
        const auto constraint = rules->start();
        std::string_view rest = one.text;
        for (std::size_t place = 0;; ++place) {
            auto begin = Clock::now();
            constraint->allow(bits);
            note(allow_us, place, Clock::now() - begin);
            if (rest.empty()) break;
            std::int32_t longest = -1;
            for (std::int32_t t = 0; t < tokens->vocab_size(); ++t)
                if (grammar::has_bit(bits, t) && rest.starts_with(tokens->piece(t)) &&
                    (longest < 0 || tokens->piece(t).size() > tokens->piece(longest).size()))
                    longest = t;
            if (longest < 0) {
                std::printf("%-20s stuck before %.20s\n", one.name, rest.data());
                return;
            }
            begin = Clock::now();
            (void)constraint->accept(longest);
            note(accept_us, place, Clock::now() - begin);
            rest.remove_prefix(tokens->piece(longest).size());
        }
    }
    const auto medians = [](const std::vector<std::vector<double>>& of) {
        std::vector<double> out;
        for (const auto& rounds : of) out.push_back(percentile(rounds, 0.5));
        return out;
    };
    const std::vector<double> allow = medians(allow_us), accept = medians(accept_us);
    std::printf(
        "%-20s compile %9.0f us  %7zu states %8.2f MiB   mask p50 %6.2f  p90 %6.2f  max %7.2f us   "
        "accept p50 %5.2f us\n",
        one.name, percentile(compile_us, 0.5), rules->grammar().num_states(),
        static_cast<double>(rules->num_bytes()) / (1U << 20U), percentile(allow, 0.5),
        percentile(allow, 0.9), percentile(allow, 1), percentile(accept, 0.5));
}

}  // namespace

int main() {
    const double begin = thread_microseconds();
    const auto tokens = make_vocabulary();
    std::printf("vocabulary: %d tokens, arranged in %.0f ms (with making it up), %.1f MiB\n",
                tokens->vocab_size(), (thread_microseconds() - begin) / 1000,
                static_cast<double>(tokens->num_bytes()) / (1U << 20U));
    std::vector<std::uint32_t> from(grammar::num_words(tokens->vocab_size()), 1), to(from.size());
    std::vector<double> floor_us;
    for (int i = 0; i < 2000; ++i) {
        const auto start = Clock::now();
        std::memset(to.data(), 0, to.size() * 4);
        std::memcpy(to.data(), from.data(), to.size() * 4);
        floor_us.push_back(microseconds(Clock::now() - start));
        from[static_cast<std::size_t>(i) % from.size()] += to[0];
    }
    std::printf("limit: memset and memcpy of a mask, %zu bytes: p50 %.2f us\n", to.size() * 4,
                percentile(floor_us, 0.5));
    for (const Case& one : cases()) measure_masks(one, tokens);
}
