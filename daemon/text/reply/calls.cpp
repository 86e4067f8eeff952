#include "daemon/text/reply/calls.hpp"

#include <utility>

namespace reply {

void append_event(std::vector<Event>& events, Event event) {
    using Kind = Event::Kind;
    const bool is_delta = event.kind == Kind::content || event.kind == Kind::reasoning ||
                          event.kind == Kind::arguments;
    if (is_delta && event.text.empty()) return;
    const bool goes_on =
        is_delta && !events.empty() && events.back().kind == event.kind &&
        (event.kind == Kind::arguments || events.back().at + events.back().text.size() == event.at);
    if (goes_on)
        events.back().text.append(event.text);
    else
        events.push_back(std::move(event));
}

void Calls::begin(std::string name, std::string id) {
    in_.stop_log();
    open_ = true;
    append_event(*events_, {Event::Kind::call_begin, std::move(name), num_calls_++, std::move(id), 0});
}

void Calls::arguments(std::string_view text) {
    append_event(*events_, {Event::Kind::arguments, std::string{text}, num_calls_ - 1, {}, 0});
}

void Calls::end(std::string id) {
    open_ = false;
    append_event(*events_, {Event::Kind::call_end, {}, num_calls_ - 1, std::move(id), 0});
    in_.start_log();
}

void Calls::fail() {
    open_ = false;
    append_event(*events_, {Event::Kind::call_failed, reason_, num_calls_ - 1, {}, 0});
}

Found read_name(Cursor& in, std::string& name) {
    constexpr std::string_view kCharacters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-:/";
    const std::string_view here = in.rest();
    const std::size_t n = std::min(here.find_first_not_of(kCharacters), here.size());
    const std::size_t taken = std::min(n, kMaxNameBytes - name.size());
    name.append(here.substr(0, taken));
    in.take(taken);
    if (taken < n) return Found::no;
    if (in.empty()) return in.unknown();
    return name.empty() ? Found::no : Found::yes;
}

Found read_before(Cursor& in, std::string_view mark, std::size_t max_bytes, std::string& text) {
    Found found = Found::no;
    const std::size_t n = in.bytes_before(mark, found);
    const std::size_t taken = std::min(n, max_bytes - text.size());
    text.append(in.rest().substr(0, taken));
    in.take(taken);
    if (taken < n) return Found::no;
    if (found == Found::yes) in.take(mark.size());
    return found;
}

}  // namespace reply
