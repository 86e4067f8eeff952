// What texts a schema gives way to, and which schemas are refused in which words.

#include "tests/daemon/text/grammar/grammar_support.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace grammar_test {
namespace {

struct Case {
    const char* schema;
    std::vector<const char*> accepted, rejected;
};

const Case kCases[] = {
    {R"({"type":"string"})",
     {R"("")", R"("a b")", R"("\n\"\\\/\u00e9")", R"(" \uD7FF")",
      "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"", R"( "led by a space")"},
     {R"(a)", R"("a)", "\"a\nb\"", R"("\x")", R"("\ud800")", R"("\u12g4")", "\"\xC0\x80\"",
      "\"\xED\xA0\x80\"", "\"\xFF\"", R"("" )", R"(  "")"}},
    {R"({"type":"string","minLength":2,"maxLength":3})",
     {R"("ab")", R"("abc")", R"("a\n")", "\"\xC3\xA9\xC3\xA9\xC3\xA9\""},
     {R"("a")", R"("abcd")", R"("")", "\"\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\"", R"("abc\n")"}},
    {R"({"type":"integer"})",
     {"0", "-1", "42", "999999999999999999"},
     {"-0", "01", "1.0", "1e3", "1000000000000000000", "+1", "--1"}},
    {R"({"type":"integer","minimum":-12,"maximum":105})",
     {"-12", "-9", "-1", "0", "7", "99", "100", "105"},
     {"-13", "-20", "106", "110", "1000", "-0", "00"}},
    {R"({"type":"integer","exclusiveMinimum":9,"exclusiveMaximum":11})", {"10"}, {"9", "11", "1"}},
    {R"({"type":"integer","minimum":2.5})", {"3", "30"}, {"2", "-3", "0"}},
    {R"({"type":"number"})",
     {"0", "-0", "-0.5", "3.25", "1e5", "2E-07", "1.5e+10"},
     {"01", ".5", "1.", "1e", "1e123", "NaN", "Infinity"}},
    {R"({"type":"number","minimum":0,"maximum":1})",
     {"0", "0.0", "0.75", "1", "1.000"},
     {"1.1", "0.1e0", "-0.5", "2", "1.0001", "10"}},
    {R"({"type":"number","exclusiveMinimum":-2,"maximum":3})",
     {"-1.5", "-1", "0", "3.0", "2.99"},
     {"-2", "-2.0", "-2.5", "3.01", "4"}},
    {R"({"type":"boolean"})", {"true", "false"}, {"True", "null", "truefalse"}},
    {R"({"type":"null"})", {"null"}, {"nul", "nulll"}},
    {R"({"type":["integer","null"]})", {"1", "null"}, {"\"1\"", "true"}},
    {R"({"enum":["a",1,null,{"x":[1,2]}]})",
     {R"("a")", "1", "null", R"({"x":[1,2]})"},
     {R"("b")", "2", R"({"x":[1]})"}},
    {R"({"const":"\u00e9\n"})", {"\"\xC3\xA9\\n\""}, {R"("x")"}},
    {R"({"enum":[1,"two",3],"type":"integer","maximum":2})", {"1"}, {"3", R"("two")"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false})",
     {R"({"a":1})", R"({"a": 1, "b": "x"})", R"({ "a":1 })", R"({"a":1,"b":""})"},
     {R"({})", R"({"b":"x"})", R"({"b":"x","a":1})", R"({"a":1,})", R"({"a":1,"c":2})",
      R"({"a" :1})", R"({"a":  1})", R"({"a":"1"})", R"({"a":1,"a":1})", "{\n\"a\":1}"}},
    {R"({"type":"object","properties":{"a":{},"b":{},"c":{}}})",
     {"{}", R"({"b":1})", R"({"a":[],"c":{}})", R"({"c":null})"},
     {R"({"c":1,"b":1})", R"({,"b":1})", R"({"d":1})"}},
    {R"({"type":"object","additionalProperties":{"type":"integer"}})",
     {"{}", R"({"x":1,"y":2})"},
     {R"({"x":"1"})"}},
    {R"({"type":"object","properties":{"ab":{"type":"string"}},"additionalProperties":{"type":"integer"}})",
     {R"({"ab":"s","abc":1,"a":2})", R"({"a":1})", R"({"":1})"},
     {R"({"ab":1})", R"({"a":1,"ab":2})", R"({"\u0061b":1})", R"({"abc":"s"})"}},
    {R"({"type":"object","required":["x"]})", {R"({"x":1})"}, {"{}", R"({"y":1})"}},
    {R"({"type":"object"})", {"{}", R"({"a":{"b":[1,{"c":null}]}})"}, {"[]", "1"}},
    {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
     {"[1]", "[1, 2]", "[ 1,2,3 ]"},
     {"[]", "[1,2,3,4]", "[1,]", R"(["1"])"}},
    {R"({"type":"array","items":{"type":"boolean"}})",
     {"[]", "[ ]", "[true,false,true]"},
     {"[1]", "[true"}},
    {R"({"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}]})",
     {R"(["a",1])", R"(["a"])", "[]"},
     {"[1]", R"(["a",1,2])"}},
    {R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"null"},"minItems":2})",
     {R"(["a",null])", R"(["a",null,null])"},
     {R"(["a"])", "[null,null]"}},
    {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
    {R"({"anyOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind","x"]},{"type":"object","properties":{"kind":{"const":"b"},"y":{"type":"string"}},"required":["kind","y"]}]})",
     {R"({"kind":"a","x":1})", R"({"kind": "b", "y": "s"})"},
     {R"({"kind":"a","y":"s"})", R"({"kind":"b","x":1})"}},
    {R"({"oneOf":[{"type":"string"},{"type":"null"}]})", {R"("s")", "null"}, {"1"}},
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
     {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
     {"{}"}},
    {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["b"]}]})",
     {R"({"a":1,"b":null})"},
     {R"({"a":1})", R"({"b":null})"}},
    {R"({"allOf":[{"type":"integer","minimum":3},{"maximum":5}]})", {"3", "5"}, {"2", "6"}},
    {R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
     {R"({"v":1})", R"({"v":1,"next":1})"}},
    {R"({"type":"object","properties":{"child":{"$ref":"#"}}})",
     {"{}", R"({"child":{"child":{}}})"},
     {R"({"child":1})"}},
    {R"({"type":"object","properties":{"no":false,"yes":true}})",
     {"{}", R"({"yes":[1]})"},
     {R"({"no":1})"}},
    {R"({"type":"string","pattern":"^[a-c]+[0-9]{2}$"})",
     {R"("abc12")", R"("a00")"},
     {R"("12")", R"("a1")", R"("a123")", R"("d12")"}},
    {R"({"type":"string","pattern":"b"})",
     {R"("abc")", R"("b")", R"("\nb\"")"},
     {R"("ac")", R"("")"}},
    {R"({"type":"string","pattern":"^(?:\\d{3}|x\\.y?)$"})",
     {R"("123")", R"("x.")", R"("x.y")"},
     {R"("12")", R"("xay")"}},
    {R"({"type":"string","pattern":"^[^a-z\\s]$"})",
     {R"("A")", "\"\xF0\x9F\x98\x80\"", R"("\"")", R"("\\")"},
     {R"("a")", R"(" ")", R"("\n")", R"("AB")"}},
    {R"({"type":"string","format":"date"})",
     {R"("2026-02-28")", R"("1999-12-31")", R"("2000-04-30")"},
     {R"("2026-02-29")", R"("2026-04-31")", R"("2026-13-01")", R"("2026-1-1")"}},
    {R"({"type":"string","format":"date-time"})",
     {R"("2026-02-28T23:59:59Z")", R"("2026-02-28T00:00:00.123+02:00")"},
     {R"("2026-02-28 00:00:00Z")", R"("2026-02-28T24:00:00Z")", R"("2026-02-28T00:00:00")"}},
    {R"({"type":"string","format":"uuid"})",
     {R"("123e4567-e89b-12d3-a456-426614174000")"},
     {R"("123e4567e89b12d3a456426614174000")"}},
    {R"({"type":"string","format":"email"})",
     {R"("a.b+c@example.org")"},
     {R"("a@b")", R"("@example.org")", R"("a..b@example.org")"}},
    {R"({"type":"string","format":"ipv4"})",
     {R"("255.0.10.199")"},
     {R"("256.1.1.1")", R"("1.2.3")", R"("01.2.3.4")"}},
    {R"({"title":"any","description":"d","default":1,"$schema":"s"})",
     {"1", "[[]]", R"("x")", R"({"a":1})"},
     {"x", ""}},
    {R"({"properties":{"a":{"type":"integer"}}})", {R"({"a":1})", "{}"}, {"1"}},
};

TEST(Schema, GivesWayToValidTextsOnly) {
    const auto tokens = byte_vocabulary();
    for (const Case& one : kCases) {
        SCOPED_TRACE(one.schema);
        const auto rules = compiled(schema_rules(one.schema), tokens);
        for (const char* text : one.accepted)
            EXPECT_EQ(judge(rules->grammar(), text), Verdict::whole) << text;
        for (const char* text : one.rejected)
            EXPECT_NE(judge(rules->grammar(), text), Verdict::whole) << text;
    }
}

TEST(Schema, WhatCannotBeEnforcedIsRefusedByPlaceAndKeyword) {
    const std::pair<const char*, const char*> kRefused[] = {
        {R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})",
         "'/properties/a', keyword 'uniqueItems'"},
        {R"({"not":{"type":"string"}})", "keyword 'not'"},
        {R"({"type":"object","patternProperties":{"^a":{}}})", "keyword 'patternProperties'"},
        {R"({"if":{},"then":{}})", "keyword 'if'"},
        {R"({"type":"number","multipleOf":0.01})", "keyword 'multipleOf'"},
        {R"({"type":"number","minimum":0.5})", "keyword 'minimum'"},
        {R"({"type":"string","format":"regex"})", "keyword 'format'"},
        {R"({"type":"string","pattern":"(a)\\1"})", "keyword 'pattern'"},
        {R"({"type":"string","pattern":"(?=a)b"})", "look-around"},
        {R"({"type":"string","pattern":"a{2000}"})", "a count above 1000"},
        {R"({"type":"string","pattern":"\\p{L}"})", "\\p is not supported"},
        {R"({"type":"string","pattern":"(a"})", "an unmatched '('"},
        {R"({"type":"string","pattern":"a","maxLength":3})", "keyword 'maxLength'"},
        {R"({"$ref":"other.json"})", "keyword '$ref'"},
        {R"({"$ref":"#/$defs/none"})", "keyword '$ref'"},
        {R"({"$ref":"#"})", "circles"},
        {R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
         "circles"},
        {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "refers to itself"},
        {R"({"type":"object","properties":{"next":{"$ref":"#"}},"required":["next"]})",
         "no value is valid"},
        {R"({"type":"string","enum":[]})", "keyword 'enum'"},
        {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "no value is valid"},
        {R"({"type":"integer","minimum":5,"maximum":4})", "no value is valid"},
        {R"({"type":"strin"})", "keyword 'type'"},
        {R"({"type":"object","properties":[]})", "keyword 'properties'"},
        {R"({"type":"array","items":[{"type":"string"}]})", "keyword 'items'"},
        {R"({"type":"object","minProperties":1})", "keyword 'minProperties'"},
        {R"({"type":"array","maxItems":100000})", "keyword 'maxItems'"},
        {R"({"type":"string","surprise":1})", "keyword 'surprise'"},
        {R"({"type":"object","properties":{"a/b~":{"not":{}}}})", "'/properties/a~1b~0'"},
        {"{", "no valid JSON"},
    };
    for (const auto& [schema, words] : kRefused)
        EXPECT_NE(refusal_of(schema_rules(schema)).find(words), std::string::npos)
            << schema << ": \"" << refusal_of(schema_rules(schema)) << '"';
}

std::string repeated(const std::string& text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
}

TEST(Schema, HostileOnesAreRefusedOrCompiledSoon) {
    std::string laughs = R"({"$defs":{"a0":{"type":"string"})";
    std::string doubled = R"({"$defs":{"a0":{"type":"string"})";
    for (int i = 1; i < 60; ++i) {
        const std::string last = R"({"$ref":"#/$defs/a)" + std::to_string(i - 1) + R"("})";
        laughs += ",\"a" + std::to_string(i) + R"(":{"allOf":[)" + last + "," + last + "]}";
        doubled += ",\"a" + std::to_string(i) + R"(":{"anyOf":[)" + last +
                   R"(,{"type":"array","items":)" + last + "}]}";
    }
    std::string many = R"({"type":"object","properties":{"p")";
    for (int i = 0; i < 1500; ++i) many += ":{},\"p" + std::to_string(i * 7919 % 10007) + '"';
    const std::string kHostile[] = {
        laughs + R"(},"$ref":"#/$defs/a59"})",
        doubled + R"(},"$ref":"#/$defs/a59"})",
        repeated(R"({"type":"array","items":)", 120) + "{}" + repeated("}", 120),
        repeated("[", 100'000),
        many + ":{}}}",
        R"({"type":"string","pattern":")" + repeated("(a|b)*c", 300) + R"("})",
        R"({"type":"string","pattern":"(a|b)*a(a|b){14}"})",
        R"({"type":"string","pattern":"([a-z]{1,900}){1,900}"})",
        R"({"type":"string","pattern":")" + repeated("(", 5000) + R"("})",
        R"({"type":"string","enum":[")" + std::string(200'000, 'x') + R"("]})",
        R"({"type":"string","minLength":1000000000,"maxLength":1000000000})",
        R"({"type":"array","items":{"type":"array","items":{"type":"array","items":{},"maxItems":2000},"maxItems":2000},"maxItems":2000})",
        std::string(1U << 20U, ' '),
    };
    for (const std::string& schema : kHostile) {
        const auto begin = std::chrono::steady_clock::now();
        const std::string words = refusal_of(schema_rules(schema));
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        std::printf("%.60s…: %.3f s, %s\n", schema.c_str(), seconds,
                    words.empty() ? "compiled" : words.c_str());
        EXPECT_LT(words.size(), 400U);
    }
}

TEST(Schema, NestingIsBoundedWithoutDeadEnds) {
    const auto rules =
        compiled(schema_rules(R"({"type":"object","properties":{"child":{"$ref":"#"}}})"),
                 byte_vocabulary());
    std::string text;
    int levels = 0;
    while (judge(rules->grammar(), text + R"({"child":)") != Verdict::dead) {
        text += R"({"child":)";
        ++levels;
    }
    EXPECT_GT(levels, 50);
    EXPECT_EQ(judge(rules->grammar(), text + "{}" + repeated("}", levels)), Verdict::whole);
}

}  // namespace
}  // namespace grammar_test
