// Any JSON at all as a conversation: what a template gets has the same messages, no role
// "developer", and no control token's text that was not the daemon's own; and what the template
// printed is put back as it was typed.
//
// Byte 0 chooses what the template wants; JSON follows.

#include "daemon/base/check.hpp"
#include "daemon/text/chat_request.hpp"
#include "daemon/text/control_guard.hpp"
#include "tests/daemon/text/tiny_vocab.hpp"

#include <boost/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

namespace json = boost::json;

const text::Tokenizer& tokenizer() {
    static const auto made = text::make_tokenizer(
        tiny_vocab::bpe({{"<|im_start|>", 3}, {"<|im_end|>", 3}, {"<eos>", 3}}, {}));
    return *made;
}

/// No string of the value, other than a role or a type, spells a control token.
void check_protected(const json::value& value) {
    if (value.is_string()) CHECK(tokenizer().find_control(value.get_string()).empty());
    if (value.is_array())
        for (const json::value& item : value.get_array()) check_protected(item);
    if (value.is_object())
        for (const auto& [key, item] : value.get_object()) {
            CHECK(tokenizer().find_control(key).empty());
            if ((key != "role" && key != "type") || !item.is_string()) check_protected(item);
        }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    boost::system::error_code error;
    json::value value =
        json::parse(json::string_view{reinterpret_cast<const char*>(data) + 1, size - 1}, error);
    if (error || !value.is_array()) return 0;
    const text::TemplateTraits traits{.content_parts = (data[0] & 1) != 0,
                                      .content_text = (data[0] & 2) != 0,
                                      .object_arguments = (data[0] & 4) != 0,
                                      .null_content = (data[0] & 8) != 0,
                                      .nine_character_ids = (data[0] & 16) != 0};
    json::value adapted = text::adapt_messages(value.get_array(), traits);
    CHECK(adapted.get_array().size() == value.get_array().size());
    for (const json::value& message : adapted.get_array())
        if (message.is_object()) {
            const json::value* role = message.get_object().if_contains("role");
            CHECK(role == nullptr || *role != "developer");
        }
    const std::string typed = json::serialize(adapted);
    text::ControlGuard guard{tokenizer()};
    guard.protect(adapted);
    check_protected(adapted);
    const auto restored = guard.restore(json::serialize(adapted));
    CHECK(restored && restored->plain.size() == guard.num_protected());
    CHECK(restored->text == typed);
    std::size_t last = 0;
    for (const text::TextRange& range : restored->plain) {
        CHECK(range.begin >= last && range.end <= restored->text.size());
        last = range.end;
    }
    return 0;
}
