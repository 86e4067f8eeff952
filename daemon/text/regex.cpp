#define PCRE2_CODE_UNIT_WIDTH 8
#include "daemon/text/regex.hpp"

#include "daemon/text/tokenizer.hpp"

#include <cstdint>
#include <pcre2.h>

namespace text {

namespace {

// The Unicode White_Space property, as the inside of a bracket expression.
constexpr std::string_view kWhiteSpace =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Far above what any text needs (a match of n characters takes O(n) steps), low enough that a
// text made to be slow ends in seconds.
constexpr std::uint32_t kMatchLimit = 100'000'000;
constexpr std::uint32_t kDepthLimit = 50'000'000;
constexpr std::uint32_t kHeapLimitKib = 512 * 1024;
constexpr std::size_t kJitStackBytes = std::size_t{64} << 20;  // reserved, touched as needed

/// What one thread needs for matching; shared by all patterns.
struct MatchScratch {
    pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr);

    MatchScratch() {
        if (data == nullptr || context == nullptr) throw std::bad_alloc{};
        pcre2_set_match_limit(context, kMatchLimit);
        pcre2_set_depth_limit(context, kDepthLimit);
        pcre2_set_heap_limit(context, kHeapLimitKib);
        if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
    }
    ~MatchScratch() {
        pcre2_jit_stack_free(stack);
        pcre2_match_context_free(context);
        pcre2_match_data_free(data);
    }
    MatchScratch(const MatchScratch&) = delete;
    MatchScratch& operator=(const MatchScratch&) = delete;
};

}  // namespace

std::string expand_white_space(std::string_view pattern) {
    std::string out;
    bool in_brackets = false;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i];
        if (c == '\\' && i + 1 < pattern.size()) {
            const char next = pattern[++i];
            if (next == 's' && in_brackets)
                out.append(kWhiteSpace);
            else if (next == 's')
                out.append("[").append(kWhiteSpace).append("]");
            else if (next == 'S' && !in_brackets)
                out.append("[^").append(kWhiteSpace).append("]");
            else
                out.append({c, next});
            continue;
        }
        if (c == '[') in_brackets = true;
        if (c == ']') in_brackets = false;
        out.push_back(c);
    }
    return out;
}

void Regex::Free::operator()(void* code) const noexcept {
    pcre2_code_free(static_cast<pcre2_code*>(code));
}

Regex::Regex(std::string_view pattern) {
    const std::string expanded = expand_white_space(pattern);
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expanded.data()), expanded.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &at, nullptr);
    if (code == nullptr) {
        PCRE2_UCHAR message[256] = {};
        pcre2_get_error_message(error, message, sizeof message);
        throw base::ModelError{"pre-tokenizer pattern \"" + std::string{pattern} +
                               "\": " + reinterpret_cast<const char*>(message) + " at offset " +
                               std::to_string(at)};
    }
    code_.reset(code);
    // Without JIT (a platform that forbids it) the interpreter gives the same matches.
    static_cast<void>(pcre2_jit_compile(code, PCRE2_JIT_COMPLETE));
}

base::Result<bool> Regex::find(std::string_view text, std::size_t from, Range& range) const {
    thread_local MatchScratch scratch;
    const auto* code = static_cast<const pcre2_code*>(code_.get());
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int rc = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, scratch.data,
                         scratch.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         scratch.data, scratch.context);
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) return Errc::regex_limit;
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(scratch.data);
    range = {offsets[0], offsets[1]};
    return true;
}

base::Result<bool> Regex::matches(std::string_view text) const {
    Range ignored;
    return find(text, 0, ignored);
}

boost::system::error_code Regex::erase_from(std::string& text) const {
    std::string kept;
    std::size_t at = 0;
    for (;;) {
        Range match;
        const auto found = find(text, at, match);
        if (!found) return found.error();
        if (!*found || match.begin == match.end) break;
        kept.append(text, at, match.begin - at);
        at = match.end;
    }
    if (at > 0) text = kept.append(text, at);
    return {};
}

boost::system::error_code Regex::split(std::string_view piece,
                                       std::vector<std::string_view>& out) const {
    const auto cut = [&](std::size_t begin, std::size_t end) {
        if (end > begin) out.push_back(piece.substr(begin, end - begin));
    };
    std::size_t done = 0;    // everything before is in `out`
    std::size_t search = 0;  // where the next match may begin
    while (search <= piece.size()) {
        Range match;
        const auto found = find(piece, search, match);
        if (!found) return found.error();
        if (!*found) break;
        cut(done, match.begin);
        cut(match.begin, match.end);
        done = search = match.end;
        if (match.begin == match.end) {  // empty: go on behind the next character
            ++search;
            while (search < piece.size() &&
                   (static_cast<unsigned char>(piece[search]) & 0xC0) == 0x80)
                ++search;
        }
    }
    cut(done, piece.size());
    return {};
}

}  // namespace text
