#include "daemon/text/reply/marked_calls.hpp"

#include "daemon/text/reply/python_arguments.hpp"

namespace reply {

namespace {

constexpr std::size_t kMaxHeaderBytes = 512;

std::string trimmed(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
    const std::size_t end = text.find_last_not_of(kSpace);
    return begin == text.size() ? std::string{} : std::string{text.substr(begin, end + 1 - begin)};
}

}  // namespace

Progress DeepseekReader::read(Cursor& in, Calls& out) {
    for (;;) {
        std::size_t which = 0;
        Found found = Found::yes;
        switch (phase_) {
            case Phase::next:
                if (in.skip_space() == Found::more) return Progress::more;
                found = in.take_one_of({"<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"}, which);
                if (found == Found::no)  // text after calls is text
                    return has_calls_ ? Progress::done : out.broken("no call follows");
                if (found == Found::more) break;
                if (which == 1) return Progress::done;
                phase_ = Phase::head;
                break;
            case Phase::head:
                found = read_before(in, "<｜tool▁sep｜>", kMaxNameBytes, name_);
                if (found == Found::no) return out.broken("<｜tool▁sep｜> does not follow");
                if (found == Found::more) break;
                name_ = trimmed(name_);
                if (name_ == "function") {
                    name_.clear();
                    phase_ = Phase::fenced_name;
                    break;
                }
                if (!out.accepts(name_)) return out.broken("no such tool is declared");
                out.begin(name_);
                phase_ = Phase::fence;
                break;
            case Phase::fenced_name:
                found = read_before(in, "\n", kMaxNameBytes, name_);
                if (found == Found::more) break;
                name_ = trimmed(name_);
                if (found == Found::no || !out.accepts(name_))
                    return out.broken("no such tool is declared");
                out.begin(name_);
                phase_ = Phase::fence;
                break;
            case Phase::fence:
                if (in.skip_space() == Found::more) return Progress::more;
                found = in.take_one_of({"```json", "```"}, which);
                if (found == Found::more) break;
                arguments_ = {};
                found = Found::yes;
                phase_ = Phase::arguments;
                break;
            case Phase::arguments:
                if (const Progress p = arguments_.read(in, out); p != Progress::done) return p;
                out.end();
                has_calls_ = true;
                name_.clear();
                phase_ = Phase::fence_end;
                break;
            case Phase::fence_end:
                if (in.skip_space() == Found::more) return Progress::more;
                found = in.take_mark("```");
                if (found != Found::more) phase_ = Phase::call_end;
                break;
            case Phase::call_end:
                if (in.skip_space() == Found::more) return Progress::more;
                found = in.take_mark("<｜tool▁call▁end｜>");
                if (found != Found::more) phase_ = Phase::next;
                break;
        }
        if (found == Found::more) return Progress::more;
    }
}

Progress MistralReader::read(Cursor& in, Calls& out) {
    for (;;) {
        std::size_t which = 0;
        Found found = Found::yes;
        switch (phase_) {
            case Phase::open:
                if (in.skip_space() != Found::yes) return Progress::more;
                phase_ = in.rest().front() == '[' ? Phase::list : Phase::name;
                break;
            case Phase::list:
                return list_.read(in, out);
            case Phase::name:
                found = read_name(in, name_);
                if (found == Found::no || (found == Found::yes && !out.accepts(name_)))
                    return out.broken("no such tool is declared");
                if (found == Found::yes) phase_ = Phase::mark;
                break;
            case Phase::mark:
                found = in.take_one_of({"[ARGS]", "[CALL_ID]"}, which);
                if (found == Found::more) break;
                if (found == Found::no && !in.rest().starts_with('{'))
                    return out.broken("neither [ARGS] nor an object follows");
                if (found == Found::yes && which == 1) {
                    phase_ = Phase::id;
                    break;
                }
                found = Found::yes;
                out.begin(name_, id_);
                phase_ = Phase::arguments;
                break;
            case Phase::id:
                found = read_before(in, "[ARGS]", kMaxNameBytes, id_);
                if (found == Found::no) return out.broken("[ARGS] does not follow");
                if (found == Found::more) break;
                id_ = trimmed(id_);
                out.begin(name_, id_);
                phase_ = Phase::arguments;
                break;
            case Phase::arguments: {
                const Progress progress = arguments_.read(in, out);
                if (progress == Progress::done) out.end();
                return progress;
            }
        }
        if (found == Found::more) return Progress::more;
    }
}

Progress PythonTagReader::read(Cursor& in, Calls& out) {
    for (;;) {
        switch (phase_) {
            case Phase::open:
                if (in.skip_space() != Found::yes) return Progress::more;
                phase_ = in.rest().front() == '{' ? Phase::json : Phase::name;
                break;
            case Phase::json:
                return json_.read(in, out);
            case Phase::name: {
                const Found found = read_before(in, ".call(", kMaxNameBytes, name_);
                if (found == Found::more) return Progress::more;
                if (found == Found::no || !out.accepts(name_))
                    return out.broken("no such tool is declared");
                out.begin(name_);
                phase_ = Phase::arguments;
                break;
            }
            case Phase::arguments: {
                if (in.empty()) return Progress::more;
                const char c = in.rest().front();
                in.take(1);
                if (escaped_) {
                    escaped_ = false;
                } else if (quote_ != '\0') {
                    escaped_ = c == '\\';
                    if (c == quote_) quote_ = '\0';
                } else if (c == '"' || c == '\'') {
                    quote_ = c;
                } else if (c == '(' || c == '[' || c == '{') {
                    ++depth_;
                } else if (c == ')' && depth_ == 0) {
                    const auto arguments = json_of_python_arguments(text_);
                    if (!arguments) return out.broken("the arguments are not key=value pairs");
                    out.arguments(*arguments);
                    out.end();
                    return Progress::done;
                } else if ((c == ')' || c == ']' || c == '}') && depth_ > 0) {
                    --depth_;
                }
                text_.push_back(c);
                if (text_.size() > kMaxHeldBytes)
                    return out.broken("the call is longer than 1 MiB");
                break;
            }
        }
    }
}

Progress HarmonyHeaderReader::read(Cursor& in, Calls& out) {
    if (!is_call_) {
        const Found found = read_before(in, "<|message|>", kMaxHeaderBytes, header_);
        if (found == Found::more) return Progress::more;
        if (found == Found::no) return out.broken("<|message|> does not follow");
        const std::size_t to = header_.find("to=functions.");
        const bool is_analysis = header_.find("analysis") != header_.npos;
        if (to == header_.npos || out.tools().empty()) {
            out.switch_to(is_analysis ? Mode::reasoning : Mode::content);
            return Progress::done;
        }
        std::string name = header_.substr(to + std::string_view{"to=functions."}.size());
        name = name.substr(0, name.find_first_of(" \t\r\n<"));
        if (!out.accepts(name)) return out.broken("no such tool is declared");
        out.begin(std::move(name));
        is_call_ = true;
    }
    const Progress progress = arguments_.read(in, out);
    if (progress == Progress::done) {
        out.end();
        out.switch_to(Mode::content);
    }
    return progress;
}

Progress HarmonyEndReader::read(Cursor&, Calls& out) {
    out.switch_to(Mode::content);
    return Progress::done;
}

}  // namespace reply
