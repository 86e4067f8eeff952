#include "daemon/text/reply/tagged_calls.hpp"

namespace reply {

namespace {

constexpr std::size_t kMaxKeyBytes = 256;

}  // namespace

void TaggedArguments::begin(Calls& out, std::string_view key, ParameterType type) {
    std::string text = is_first_ ? "{\"" : ", \"";
    append_json_string(text, key);
    text.append(type == ParameterType::string ? "\": \"" : "\": ");
    out.arguments(text);
    is_first_ = false;
    key_ = key;
    type_ = type;
    at_start_ = true;
    held_line_feed_ = false;
    value_.clear();
}

Progress TaggedArguments::add(Calls& out, std::string_view text) {
    if (text.empty()) return Progress::done;
    if (at_start_ && trim_ && text.starts_with('\n')) text.remove_prefix(1);
    at_start_ = false;
    if (type_ != ParameterType::string) {
        value_.append(text);
        return value_.size() > kMaxHeldBytes
                   ? out.broken("the value of \"" + key_ + "\" is longer than 1 MiB")
                   : Progress::done;
    }
    std::string escaped;
    if (held_line_feed_ && !text.empty()) {
        append_json_string(escaped, "\n");
        held_line_feed_ = false;
    }
    if (trim_ && text.ends_with('\n')) {
        held_line_feed_ = true;
        text.remove_suffix(1);
    }
    append_json_string(escaped, text);
    out.arguments(escaped);
    return Progress::done;
}

Progress TaggedArguments::read(Cursor& in, Calls& out) {
    Found found = Found::no;
    std::size_t n = in.bytes_before(close_mark_, found);
    if (type_ != ParameterType::string) n = std::min(n, kMaxHeldBytes + 1 - value_.size());
    const Progress progress = add(out, in.rest().substr(0, n));
    in.take(n);
    if (progress == Progress::broken) return progress;
    if (found == Found::more) return Progress::more;
    if (found == Found::no) return out.broken("the value of \"" + key_ + "\" has no end");
    in.take(close_mark_.size());
    if (type_ == ParameterType::string) {
        out.arguments("\"");
        return Progress::done;
    }
    std::string_view value = value_;
    if (trim_ && value.ends_with('\n')) value.remove_suffix(1);
    out.arguments(json_of_text(value, type_));
    return Progress::done;
}

Progress GlmReader::read(Cursor& in, Calls& out) {
    for (;;) {
        std::size_t which = 0;
        Found found = Found::yes;
        switch (phase_) {
            case Phase::name:
                if (name_.empty() && in.skip_space() != Found::yes) return Progress::more;
                found = read_name(in, name_);
                if (found == Found::no) return out.broken("the call has no name");
                if (found == Found::yes) phase_ = Phase::first;
                break;
            case Phase::first:
            case Phase::next:
                if (in.skip_space() == Found::more) return Progress::more;
                found = in.take_one_of({"<arg_key>", "</tool_call>"}, which);
                if (found == Found::no)
                    return out.broken("neither <arg_key> nor </tool_call> follows");
                if (found == Found::more) break;
                if (phase_ == Phase::first) {
                    if (!out.accepts(name_)) return out.broken("no such tool is declared");
                    out.begin(name_);
                }
                if (which == 1) {
                    arguments_.close(out);
                    out.end();
                    return Progress::done;
                }
                key_.clear();
                phase_ = Phase::key;
                break;
            case Phase::key:
                found = read_before(in, "</arg_key>", kMaxKeyBytes, key_);
                if (found == Found::no) return out.broken("<arg_key> has no end");
                space_.clear();
                if (found == Found::yes) phase_ = Phase::value_open;
                break;
            case Phase::value_open:
                if (in.skip_space(&space_) == Found::more) return Progress::more;
                if (space_.size() > kMaxHeldBytes) return out.broken("no <arg_value> follows");
                found = in.take_one_of({"<arg_value>", "<arg_key>", "</tool_call>"}, which);
                if (found == Found::more) break;
                if (found == Found::yes && which > 0)
                    return out.broken("\"" + key_ + "\" has no value");
                arguments_.begin(out, key_, out.tools().type_of(name_, key_));
                if (found == Found::no) {  // the opening tag was left out
                    std::string_view text = space_;
                    if (text.starts_with('\n')) text.remove_prefix(1);
                    if (arguments_.add(out, text) == Progress::broken) return Progress::broken;
                }
                found = Found::yes;
                phase_ = Phase::value;
                break;
            case Phase::value:
                if (const Progress p = arguments_.read(in, out); p != Progress::done) return p;
                phase_ = Phase::next;
                break;
        }
        if (found == Found::more) return Progress::more;
    }
}

Progress FunctionReader::read(Cursor& in, Calls& out) {
    for (;;) {
        std::size_t which = 0;
        Found found = Found::yes;
        switch (phase_) {
            case Phase::open:
                if (in.skip_space() == Found::more) return Progress::more;
                found = in.take_mark("<function=");
                if (found == Found::no) return out.broken("no <function= follows");
                if (found == Found::yes) phase_ = Phase::name;
                break;
            case Phase::name:
                found = read_name(in, name_);
                if (found == Found::more) break;
                if (found == Found::no || in.take_mark(">") != Found::yes || !out.accepts(name_) ||
                    (is_bare_ && !out.tools().contains(name_)))
                    return out.broken("no such tool is declared");
                out.begin(name_);
                phase_ = Phase::next;
                break;
            case Phase::next:
                if (in.skip_space() == Found::more) return Progress::more;
                found = in.take_one_of({"<parameter=", "</function>"}, which);
                if (found == Found::no)
                    return out.broken("neither <parameter= nor </function> follows");
                if (found == Found::more) break;
                if (which == 1) {
                    arguments_.close(out);
                    out.end();
                    return Progress::done;
                }
                key_.clear();
                phase_ = Phase::key;
                break;
            case Phase::key:
                found = read_before(in, ">", kMaxKeyBytes, key_);
                if (found == Found::no) return out.broken("<parameter= has no end");
                if (found == Found::more) break;
                arguments_.begin(out, key_, out.tools().type_of(name_, key_));
                phase_ = Phase::value;
                break;
            case Phase::value:
                if (const Progress p = arguments_.read(in, out); p != Progress::done) return p;
                phase_ = Phase::next;
                break;
        }
        if (found == Found::more) return Progress::more;
    }
}

Progress DsmlReader::read(Cursor& in, Calls& out) {
    for (;;) {
        std::size_t which = 0;
        Found found = Found::yes;
        switch (phase_) {
            case Phase::next_call:
                if (in.skip_space() == Found::more) return Progress::more;
                found =
                    in.take_one_of({"<｜DSML｜invoke name=\"", "</｜DSML｜function_calls>"}, which);
                if (found == Found::no) return out.broken("no invocation follows");
                if (found == Found::yes && which == 1) return Progress::done;
                name_.clear();
                if (found == Found::yes) phase_ = Phase::name;
                break;
            case Phase::name:
                found = read_before(in, "\">", kMaxNameBytes, name_);
                if (found == Found::more) break;
                if (found == Found::no || !out.accepts(name_))
                    return out.broken("no such tool is declared");
                out.begin(name_);
                arguments_ = TaggedArguments{kCloseValue, false};
                phase_ = Phase::next;
                break;
            case Phase::next:
                if (in.skip_space() == Found::more) return Progress::more;
                found = in.take_one_of({"<｜DSML｜parameter name=\"", "</｜DSML｜invoke>"}, which);
                if (found == Found::no)
                    return out.broken("neither a parameter nor the end follows");
                if (found == Found::more) break;
                if (which == 1) {
                    arguments_.close(out);
                    out.end();
                    phase_ = Phase::next_call;
                    break;
                }
                key_.clear();
                phase_ = Phase::key;
                break;
            case Phase::key:
                found = read_before(in, "\" string=\"", kMaxKeyBytes, key_);
                if (found == Found::no) return out.broken("a parameter does not say what it is");
                if (found == Found::yes) phase_ = Phase::type;
                break;
            case Phase::type:
                found = in.take_one_of({"true\">", "false\">"}, which);
                if (found == Found::no) return out.broken("string is neither true nor false");
                if (found == Found::more) break;
                arguments_.begin(out, key_,
                                 which == 0 ? ParameterType::string : ParameterType::other);
                phase_ = Phase::value;
                break;
            case Phase::value:
                if (const Progress p = arguments_.read(in, out); p != Progress::done) return p;
                phase_ = Phase::next;
                break;
        }
        if (found == Found::more) return Progress::more;
    }
}

}  // namespace reply
