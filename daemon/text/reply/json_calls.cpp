#include "daemon/text/reply/json_calls.hpp"

#include <boost/json.hpp>

namespace reply {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxKeyBytes = 256;

/// The text of a JSON string literal.
std::optional<std::string> unquote(std::string_view literal) {
    boost::system::error_code error;
    const json::value value = json::parse(json::string_view{literal.data(), literal.size()}, error);
    if (error || !value.is_string()) return std::nullopt;
    return std::string{value.get_string()};
}

bool is_object(std::string_view text) {
    boost::system::error_code error;
    return json::parse(json::string_view{text.data(), text.size()}, error).is_object() && !error;
}

}  // namespace

Progress ObjectReader::read(Cursor& in, Calls& out) {
    if (!begun_) {
        if (in.skip_space() == Found::more) return Progress::more;
        if (!in.rest().starts_with('{')) return out.broken("the arguments are no JSON object");
        begun_ = true;
    }
    std::string copy;
    std::size_t n = 0;
    auto step = JsonScanner::Step::more;
    for (const std::string_view here = in.rest();
         n < here.size() && step == JsonScanner::Step::more;)
        step = scanner_.push(here[n++], copy);
    in.take(n);
    out.arguments(copy);
    if (step == JsonScanner::Step::error) return out.broken("the arguments are no valid JSON");
    return step == JsonScanner::Step::done ? Progress::done : Progress::more;
}

Progress JsonCall::read(Cursor& in, Calls& out) {
    for (;;) {
        Progress progress = Progress::done;  // of this step
        if (phase_ != Phase::key_text && phase_ != Phase::value) {
            if (in.skip_space() != Found::yes) return Progress::more;
        } else if (in.empty()) {
            return Progress::more;
        }
        const char c = in.rest().front();
        switch (phase_) {
            case Phase::open:
                if (c != '{') return out.broken("the call is no JSON object");
                in.take(1);
                phase_ = Phase::first_key;
                break;
            case Phase::first_key:
            case Phase::key:
                if (c == '}' && phase_ == Phase::first_key) {
                    in.take(1);
                    return finish(out);
                }
                if (c != '"') return out.broken("the call is no valid JSON");
                key_.clear();
                scanner_ = {};
                phase_ = Phase::key_text;
                break;
            case Phase::key_text: {
                const auto step = scanner_.push(c, key_);
                in.take(1);
                if (step == JsonScanner::Step::error || key_.size() > kMaxKeyBytes)
                    return out.broken("the call is no valid JSON");
                if (step == JsonScanner::Step::done) phase_ = Phase::colon;
                break;
            }
            case Phase::colon:
                if (c != ':') return out.broken("the call is no valid JSON");
                in.take(1);
                phase_ = Phase::value_begin;
                break;
            case Phase::value_begin:
                progress = begin_value(in, out);
                break;
            case Phase::value:
                progress = read_value(in, out);
                break;
            case Phase::after_value:
                if (c != ',' && c != '}') return out.broken("the call is no valid JSON");
                in.take(1);
                if (c == '}') return finish(out);
                phase_ = Phase::key;
                break;
        }
        if (progress != Progress::done) return progress;
    }
}

Progress JsonCall::begin_value(Cursor& in, Calls& out) {
    field_ = key_ == R"("name")"         ? Field::name
             : key_ == R"("arguments")"  ? Field::arguments
             : key_ == R"("parameters")" ? Field::arguments
             : key_ == R"("id")"         ? Field::id
             : key_ == R"("type")"       ? Field::type
                                         : Field::other;
    if (field_ == Field::other && strict_) return out.broken("the object is no call");
    if (field_ == Field::other) has_other_ = true;
    if ((field_ == Field::name && begun_) || (field_ == Field::arguments && arguments_))
        return out.broken("the call has the key " + key_ + " twice");
    scanner_ = {};
    value_.clear();
    streaming_ = field_ == Field::arguments && begun_ && in.rest().front() == '{';
    phase_ = Phase::value;
    return Progress::done;
}

Progress JsonCall::read_value(Cursor& in, Calls& out) {
    std::string copy;
    std::size_t n = 0;
    auto step = JsonScanner::Step::more;
    const std::string_view here = in.rest();
    while (n < here.size() && step == JsonScanner::Step::more &&
           (streaming_ || value_.size() + copy.size() <= kMaxHeldBytes))
        step = scanner_.push(here[n++], copy);
    if (step == JsonScanner::Step::ended) --n;  // that byte comes after the value
    in.take(n);
    if (streaming_)
        out.arguments(copy);
    else
        value_.append(copy);
    if (step == JsonScanner::Step::error) return out.broken("the call is no valid JSON");
    if (value_.size() > kMaxHeldBytes) return out.broken("the call is longer than 1 MiB");
    if (step == JsonScanner::Step::more) return Progress::more;
    phase_ = Phase::after_value;
    return end_value(out);
}

Progress JsonCall::end_value(Calls& out) {
    switch (field_) {
        case Field::name:
            return take_name(out);
        case Field::arguments:
            return take_arguments(out);
        case Field::id:
            id_ = unquote(value_).value_or("");
            if (id_.size() > kMaxNameBytes) id_.clear();
            break;
        case Field::type:
        case Field::other:
            break;
    }
    return Progress::done;
}

Progress JsonCall::take_name(Calls& out) {
    auto name = unquote(value_);
    if (!name) return out.broken("the call's name is no string");
    if (!out.accepts(*name)) return out.broken("no such tool is declared");
    begun_ = true;
    out.begin(std::move(*name), id_);
    if (arguments_) out.arguments(*arguments_);
    return Progress::done;
}

Progress JsonCall::take_arguments(Calls& out) {
    if (streaming_) {
        arguments_.emplace();
        return Progress::done;
    }
    std::string text = value_;
    if (value_.starts_with('"')) text = unquote(value_).value_or("");
    if (value_ == "null") text = "{}";
    if (!text.starts_with('{') && !is_object(text))
        return out.broken("the call's arguments are no object");
    if (value_.starts_with('"') && !is_object(text))
        return out.broken("the call's arguments are no valid JSON");
    if (begun_) out.arguments(text);
    arguments_ = std::move(text);
    return Progress::done;
}

Progress JsonCall::finish(Calls& out) {
    if (!begun_) return out.broken("the call has no name");
    if (!arguments_) {
        // What the model meant as arguments must not turn into none.
        if (has_other_) return out.broken("the call has no arguments, but a key that is not known");
        out.arguments("{}");
    }
    out.end(id_);
    return Progress::done;
}

Progress JsonCallsReader::read(Cursor& in, Calls& out) {
    for (;;) {
        if (!call_) {
            const Found next = in.skip_space();
            if (next == Found::more) return Progress::more;
            const char c = next == Found::yes ? in.rest().front() : '\0';
            if (!between_ && !in_array_ && c == '[') {
                in.take(1);
                in_array_ = true;
                continue;
            }
            if (between_ && in_array_) {
                if (c == ']' || c == ',') in.take(1);
                if (c == ']' || c == '\0') return Progress::done;
                if (c != ',') return out.broken("the list of calls is no valid JSON");
                between_ = false;
                continue;
            }
            if (between_ && c != '{') return Progress::done;
            call_.emplace(strict_);
        }
        const Progress progress = call_->read(in, out);
        if (progress != Progress::done) return progress;
        call_.reset();
        between_ = true;
    }
}

}  // namespace reply
