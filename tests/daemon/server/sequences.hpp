#pragma once

#include "tests/daemon/server/golden.hpp"
#include "tests/support/fake_codec.hpp"
#include "tests/support/web_client.hpp"

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

/// What the events of a response must be, whatever it says.
namespace sequences {

namespace json = boost::json;
using support::FakeCodec;

inline std::string type_of(const json::object& event) {
    const json::value* type = event.if_contains("type");
    return type == nullptr ? "(closed)" : std::string{type->as_string()};
}

/// The text that a prompt was made of, without its BOS.
inline std::string text_of(const std::vector<std::int32_t>& prompt) {
    std::string out;
    for (const std::int32_t token : prompt)
        if (token != FakeCodec::kBos) out += static_cast<char>(token);
    return out;
}

/// Golden members must be in ours with the same value; what changes from run to run only in kind.
inline void expect_like(const json::value& golden, const json::value& ours, const std::string& at) {
    static const std::set<std::string> kVolatile = {
        "id",           "item_id",       "created_at",
        "completed_at", "input_tokens",  "output_tokens",
        "total_tokens", "cached_tokens", "message",
        "call_id",      "reasoning_tokens"};
    const std::string key = at.substr(at.find_last_of('.') + 1);
    if (kVolatile.contains(key)) {
        EXPECT_EQ(golden.is_null(), ours.is_null()) << at;
        EXPECT_EQ(golden.is_string(), ours.is_string()) << at;
        return;
    }
    if (golden.is_object()) {
        ASSERT_TRUE(ours.is_object()) << at;
        for (const auto& [name, value] : golden.as_object()) {
            const std::string member = at + "." + std::string{name};
            ASSERT_TRUE(ours.as_object().contains(name)) << member << " is missing";
            expect_like(value, ours.at(name), member);
        }
    } else if (golden.is_array()) {
        ASSERT_TRUE(ours.is_array()) << at;
        ASSERT_EQ(golden.as_array().size(), ours.as_array().size()) << at;
        for (std::size_t i = 0; i < golden.as_array().size(); ++i)
            expect_like(golden.as_array()[i], ours.as_array()[i],
                        at + "[" + std::to_string(i) + "]");
    } else if (golden.is_number()) {
        ASSERT_TRUE(ours.is_number()) << at;
        EXPECT_NEAR(golden.to_number<double>(), ours.to_number<double>(), 1e-6) << at;
    } else {
        EXPECT_EQ(golden, ours) << at;
    }
}

inline void expect_sequence(const std::string& name, const std::vector<json::object>& ours) {
    const json::value all = read_golden("server_sequences.json");
    const json::array& golden = all.at("sequences").at(name).as_array();
    std::string golden_types, our_types;
    for (const json::value& event : golden) golden_types += type_of(event.as_object()) + "\n";
    for (const json::object& event : ours) our_types += type_of(event) + "\n";
    ASSERT_EQ(golden_types, our_types);
    for (std::size_t i = 0; i < ours.size(); ++i)
        expect_like(golden[i], ours[i], name + "[" + std::to_string(i) + "]");
}

/// websocket.md 3.1: what holds for the events of every response.
inline void expect_invariants(const std::vector<json::object>& events) {
    std::string text, item_id;
    int number = 0, num_items = 0;
    for (const json::object& event : events) {
        const std::string type = type_of(event);
        EXPECT_EQ(event.at("sequence_number").as_int64(), number++) << type;
        if (type == "response.output_item.added") {
            EXPECT_EQ(item_id, "") << "an item is still open";
            EXPECT_EQ(event.at("output_index").as_int64(), num_items);
            item_id = event.at("item").at("id").as_string();
            text.clear();
        }
        if (event.contains("item_id")) {
            EXPECT_EQ(event.at("item_id").as_string(), item_id);
            EXPECT_EQ(event.at("output_index").as_int64(), num_items);
        }
        if (type.ends_with(".delta")) text += event.at("delta").as_string();
        if (type.ends_with("text.done")) {
            EXPECT_EQ(event.at("text").as_string(), text);
        }
        if (type.ends_with("arguments.done")) {
            EXPECT_EQ(event.at("arguments").as_string(), text);
        }
        if (type.ends_with("part.done")) {
            EXPECT_EQ(event.at("part").at("text").as_string(), text);
        }
        if (type == "response.output_item.done") {
            EXPECT_EQ(event.at("item").at("id").as_string(), item_id);
            const json::value& output = events.back().at("response").at("output");
            if (type_of(events.back()) != "response.failed") {
                EXPECT_EQ(output.at(static_cast<std::size_t>(num_items)), event.at("item"));
            }
            ++num_items;
            item_id.clear();
        }
    }
    EXPECT_TRUE(support::is_terminal(events.back()));
    const json::value& response = events.back().at("response");
    if (type_of(events.back()) != "response.failed") {
        EXPECT_EQ(response.at("output").as_array().size(), static_cast<std::size_t>(num_items));
    }
    EXPECT_EQ(response.at("id"), events.front().at("response").at("id"));
}

}  // namespace sequences
