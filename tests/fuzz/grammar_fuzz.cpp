// Any text as a JSON schema: refused in words, or compiled, and then whatever a walk over its masks
// writes is JSON that is valid under it.

#include "daemon/base/check.hpp"
#include "tests/daemon/text/grammar/grammar_support.hpp"
#include "tests/daemon/text/grammar/validator.hpp"

namespace {

using grammar_test::Rng;

/// Keywords that the validator of the tests does not judge as the compiler does.
bool is_judged(const boost::json::value& schema) {
    if (schema.is_array()) {
        for (const auto& item : schema.get_array())
            if (!is_judged(item)) return false;
    } else if (schema.is_object()) {
        for (const auto& [key, value] : schema.get_object())
            if (key == "pattern" || key == "format" || key == "oneOf" || key == "$ref" ||
                !is_judged(value))
                return false;
    }
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const auto tokens = grammar_test::byte_vocabulary(
        {"\",", "\": ", "{\"", "\"}", "12", "}}", "\\u00", "\xE2\x82"});
    const std::string schema{reinterpret_cast<const char*>(data), size};
    const auto outcome = grammar::compile(grammar_test::schema_rules(schema), {}, tokens);
    if (const auto* refusal = std::get_if<grammar::Refusal>(&outcome)) {
        CHECK(!refusal->message.empty());
        return 0;
    }
    Rng rng{size > 0 ? data[size / 2] : 0U};
    for (int i = 0; i < 3; ++i) {
        const auto walk =
            grammar_test::walk(std::get<0>(outcome), rng, 5, 150);  // throws where it is stuck
        if (!walk.is_whole) continue;
        boost::system::error_code error;
        boost::json::parse_options options;
        options.max_depth = 512;
        const auto value = boost::json::parse(walk.text, error, {}, options);
        CHECK(!error);
        const auto parsed = boost::json::parse(schema, {}, options);
        if (is_judged(parsed)) CHECK(grammar_test::Validator{parsed}.is_valid(value));
    }
    return 0;
}
