#include "daemon/text/reply/parser.hpp"

#include <utility>

namespace reply {

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kMaxHeldSpace = 64;

}  // namespace

Parser::Parser(const Format& format, ParserOptions options)
    : format_{format},
      options_{std::move(options)},
      calls_{options_.tools ? options_.tools : std::make_shared<const Tools>(), in_},
      mode_{options_.in_reasoning ? Mode::reasoning : Mode::content},
      after_mark_{options_.in_reasoning} {}

void Parser::feed(std::string_view text, std::vector<Event>& events) {
    in_.append(text);
    run(events);
}

void Parser::finish(std::vector<Event>& events) {
    in_.close();
    run(events);
    if (mode_ == Mode::content) say({}, in_.num_taken(), events);
    space_.clear();
}

void Parser::run(std::vector<Event>& events) {
    calls_.send_to(events);
    for (;;) {
        const bool goes_on = skipping_            ? skip_broken_call()
                             : reader_ != nullptr ? read_call(events)
                                                  : read_text(events);
        if (!goes_on) return;
    }
}

bool Parser::read_text(std::vector<Event>& events) {
    std::string space;
    const Found more = in_.skip_space(&space);
    if (!after_mark_) hold_space(space, events);
    if (more != Found::yes) return false;
    const Found mark = read_marks();
    if (mark == Found::more) return false;
    if (mark == Found::yes) return true;
    // Marks and white space aside, text ends where one of them may begin.
    const std::string_view here = in_.rest();
    const std::size_t n = std::min(here.find_first_of(" \t\r\n<[", 1), here.size());
    say(here.substr(0, n), in_.num_taken(), events);
    in_.take(n);
    return true;
}

Found Parser::read_marks() {
    bool may_follow = false;
    // Whether this mark is here, or may be.
    const auto is_here = [&](std::string_view mark) {
        const std::string_view here = in_.rest();
        if (here.starts_with(mark)) return true;
        if (mark.starts_with(here) && !in_.is_closed()) may_follow = true;
        return false;
    };
    const auto leave_out = [&](std::string_view mark) {
        in_.take(mark.size());
        space_.clear();
        after_mark_ = true;
        is_fresh_ = false;
        return Found::yes;
    };
    if (is_fresh_ && is_here(format_.think_open)) {
        mode_ = Mode::reasoning;
        return leave_out(format_.think_open);
    }
    if (mode_ == Mode::reasoning && is_here(format_.think_close)) {
        mode_ = Mode::content;
        return leave_out(format_.think_close);
    }
    if (after_call_ && !format_.close_mark.empty() && is_here(format_.close_mark))
        return leave_out(format_.close_mark);

    const bool reads_calls =
        !calls_.tools().empty() && (mode_ == Mode::content || options_.calls_in_reasoning);
    if (reads_calls || format_.has_channels) {
        for (const Mark& mark : format_.calls)
            if (is_here(mark.text)) {
                begin_call(mark.reader(), mark.text.size());
                return Found::yes;
            }
        if (format_.bare_object != nullptr && mode_ == Mode::content &&
            (!has_content_ || after_call_) && in_.rest().front() == '{') {
            begin_call(format_.bare_object(), 0);
            return Found::yes;
        }
    }
    return may_follow ? Found::more : Found::no;
}

void Parser::begin_call(std::unique_ptr<CallReader> reader, std::size_t mark_bytes) {
    reader_ = std::move(reader);
    calls_.switch_to(mode_);
    calls_.require_declared(options_.declared_only || mode_ == Mode::reasoning ||
                            format_.bare_object != nullptr);
    in_.start_log(space_);
    space_.clear();
    in_.take(mark_bytes);
}

bool Parser::read_call(std::vector<Event>& events) {
    Progress progress = reader_->read(in_, calls_);
    if (progress == Progress::more && in_.is_closed())
        progress = calls_.broken("the reply ended inside the call");
    if (progress == Progress::more && in_.is_cut_short())
        progress = calls_.broken("the call is longer than 1 MiB");
    if (progress == Progress::more) return false;
    reader_.reset();
    if (progress == Progress::broken && !calls_.is_open()) {
        give_back(events);
        return true;
    }
    if (progress == Progress::broken) {
        calls_.fail();
        skipping_ = true;
    }
    in_.stop_log();
    mode_ = calls_.mode();
    after_mark_ = after_call_ = true;
    is_fresh_ = false;
    return true;
}

void Parser::give_back(std::vector<Event>& events) {
    const std::string text = in_.log();
    const std::size_t at = in_.num_taken() - text.size();
    in_.stop_log();
    const std::size_t end = text.find_last_not_of(kSpace) + 1;  // 0 where there is none
    if (end > 0) say(std::string_view{text}.substr(0, end), at, events);
    hold_space(std::string_view{text}.substr(end), events);
    if (end > 0 || in_.empty()) return;
    // Nothing was read, so this is where a mark would be found again.
    say(in_.rest().substr(0, 1), in_.num_taken(), events);
    in_.take(1);
}

bool Parser::skip_broken_call() {
    if (format_.close_mark.empty()) {
        in_.take(in_.rest().size());
        return false;
    }
    Found found = Found::no;
    in_.take(in_.bytes_before(format_.close_mark, found));
    if (found != Found::yes) return false;
    in_.take(format_.close_mark.size());
    skipping_ = false;
    return true;
}

void Parser::say(std::string_view text, std::size_t at, std::vector<Event>& events) {
    const auto kind = mode_ == Mode::content ? Event::Kind::content : Event::Kind::reasoning;
    at -= space_.size();
    append_event(events, {kind, std::exchange(space_, {}).append(text), 0, {}, at});
    after_mark_ = is_fresh_ = after_call_ = false;
    if (mode_ == Mode::content) has_content_ = true;
}

void Parser::hold_space(std::string_view space, std::vector<Event>& events) {
    space_.append(space);
    if (space_.size() <= kMaxHeldSpace) return;
    const std::size_t at = in_.num_taken() - space_.size();
    const std::string held = space_.substr(space_.size() - kMaxHeldSpace);
    space_.resize(space_.size() - kMaxHeldSpace);
    const auto kind = mode_ == Mode::content ? Event::Kind::content : Event::Kind::reasoning;
    append_event(events, {kind, space_, 0, {}, at});
    space_ = held;
}

}  // namespace reply
