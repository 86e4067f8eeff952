// Any bytes at all as a model's reply, in any format: the same events however the bytes are cut,
// every call either failed or whole with one JSON object, and no text lost outside of calls.
//
// Byte 0 chooses the format and the options, byte 1 the cuts; the reply follows.

#include "daemon/base/check.hpp"
#include "daemon/text/reply/json_scanner.hpp"
#include "daemon/text/reply/parser.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Kind = reply::Event::Kind;

std::shared_ptr<const reply::Tools> make_tools() {
    return std::make_shared<const reply::Tools>(boost::json::parse(R"([
        {"name":"send_note","parameters":{"properties":{"text":{"type":"string"},"level":{"type":"integer"}}}},
        {"name":"list_harbours"}])")
                                                    .as_array());
}

/// All events of a reply that arrives in pieces of these sizes, joined.
std::vector<reply::Event> parse(const reply::Format& format, const reply::ParserOptions& options,
                                std::string_view text, std::uint32_t cuts) {
    reply::Parser parser{format, options};
    std::vector<reply::Event> joined, events;
    const auto drain = [&] {
        for (reply::Event& event : events) append_event(joined, std::move(event));
        events.clear();
    };
    while (!text.empty()) {
        cuts = cuts * 1664525 + 1013904223;  // a linear congruence: the same cuts every time
        const std::size_t n = std::min<std::size_t>(1 + (cuts >> 27), text.size());
        parser.feed(text.substr(0, n), events);
        text.remove_prefix(n);
        drain();
    }
    parser.finish(events);
    drain();
    return joined;
}

bool is_json_object(std::string_view text) {
    reply::JsonScanner scanner;
    std::string copy;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto step = scanner.push(text[i], copy);
        if (step != reply::JsonScanner::Step::more)
            return step == reply::JsonScanner::Step::done && i + 1 == text.size() && text[0] == '{';
    }
    return false;
}

void check_events(const std::vector<reply::Event>& events) {
    std::size_t num_calls = 0;
    bool is_open = false;
    std::string arguments;
    for (const reply::Event& event : events) switch (event.kind) {
            case Kind::content:
            case Kind::reasoning:
                CHECK(!event.text.empty() && !is_open);
                break;
            case Kind::call_begin:
                CHECK(!is_open && event.call == num_calls && !event.text.empty());
                is_open = true;
                ++num_calls;
                arguments.clear();
                break;
            case Kind::arguments:
                CHECK(is_open && event.call + 1 == num_calls);
                arguments += event.text;
                break;
            case Kind::call_end:
                CHECK(is_open && is_json_object(arguments));
                is_open = false;
                break;
            case Kind::call_failed:
                CHECK(is_open && !event.text.empty());
                is_open = false;
                break;
        }
    CHECK(!is_open);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    static const auto tools = make_tools();
    const auto formats = reply::formats();
    const reply::Format& format = formats[data[0] % 16 % formats.size()];
    const reply::ParserOptions options{.tools = (data[0] & 16) != 0 ? nullptr : tools,
                                       .in_reasoning = (data[0] & 32) != 0,
                                       .declared_only = (data[0] & 64) != 0,
                                       .calls_in_reasoning = (data[0] & 128) != 0};
    const std::string_view text{reinterpret_cast<const char*>(data) + 2, size - 2};
    const auto events = parse(format, options, text, data[1]);
    check_events(events);
    std::vector<reply::Event> whole;
    reply::Parser parser{format, options};
    parser.feed(text, whole);
    parser.finish(whole);
    CHECK(events == whole);
    return 0;
}
