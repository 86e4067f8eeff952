#include "daemon/server/protocol/response_events.hpp"

#include "daemon/server/protocol/json_text.hpp"

#include <boost/json/object.hpp>

#include <algorithm>
#include <utility>

namespace server {
namespace json = boost::json;
namespace {

/// What the events of one kind of item are called.
struct Words {
    std::string_view delta;      ///< type of the events with text
    std::string_view done;       ///< type of the event with all of it
    std::string_view text;       ///< the member of that event which holds it
    std::string_view part_added;  ///< "": the item has no parts
    std::string_view part_done;
    std::string_view index;  ///< the member that numbers parts, of which there is one: the first
};

// clang-format off
constexpr Words kWords[] = {  // as ItemKind counts
    {"response.output_text.delta", "response.output_text.done", "text",
     "response.content_part.added", "response.content_part.done", R"(,"content_index":0)"},
    {"response.reasoning_text.delta", "response.reasoning_text.done", "text",
     "response.content_part.added", "response.content_part.done", R"(,"content_index":0)"},
    {"response.reasoning_summary_text.delta", "response.reasoning_summary_text.done", "text",
     "response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
     R"(,"summary_index":0)"},
    {"response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments",
     "", "", ""},
};
// clang-format on

const Words& words(ItemKind kind) {
    return kWords[static_cast<std::size_t>(kind)];
}

std::string part_of(ItemKind kind, std::string_view text, std::string_view logprobs) {
    std::string out = R"({"type":")";
    out += kind == ItemKind::message     ? "output_text"
           : kind == ItemKind::reasoning ? "reasoning_text"
                                         : "summary_text";
    out += R"(","text":)";
    append_string(out, text);
    if (kind == ItemKind::message) {
        out += R"(,"annotations":[],"logprobs":[)";
        out += logprobs;
        out += ']';
    }
    return out += '}';
}

/// @param part  "" while the item has none
std::string item_of(const ItemStart& start, std::string_view status, std::string_view part,
                    std::string_view arguments) {
    std::string out = R"({"id":")" + start.id + R"(","type":")";
    const auto open = [&](std::string_view type) {
        out += type;
        out += R"(","status":")";
        out += status;
    };
    switch (start.kind) {
        case ItemKind::message:
            open("message");
            out += R"(","role":"assistant","content":[)";
            out += part;
            return out += "]}";
        case ItemKind::reasoning:
            open("reasoning");
            out += R"(","summary":[],"content":[)";
            out += part;
            return out += part.empty() ? "]}" : R"(],"encrypted_content":null})";
        case ItemKind::summary:
            open("reasoning");
            out += R"(","summary":[)";
            out += part;
            return out += part.empty() ? "]}" : R"(],"encrypted_content":null})";
        case ItemKind::call:
            open("function_call");
            out += R"(","call_id":")" + start.call_id + R"(","name":)";
            append_string(out, start.name);
            out += R"(,"arguments":)";
            append_string(out, arguments);
            return out += '}';
    }
    return out;
}

}  // namespace

ResponseEvents::ResponseEvents(const ResponseRequest& request, std::string response_id,
                               std::string_view fingerprint, std::int64_t created_at)
    : object_{request, std::move(response_id), fingerprint, created_at} {
    if (!request.stream_id.empty())
        stream_id_ = R"(,"stream_id":")" + request.stream_id + '"';  // of a set without quotes
}

std::string ResponseEvents::open_event(std::string_view type) {
    std::string out = R"({"type":")";
    out += type;
    out += R"(","sequence_number":)" + std::to_string(sequence_number_++);
    return out;
}

void ResponseEvents::close_event(std::string& out) const {
    out += stream_id_;
    out += '}';
}

TypedEvent ResponseEvents::begin(std::string_view status) {
    const std::string_view type =
        status == "created" ? "response.created" : "response.in_progress";
    std::string out = open_event(type);
    out += R"(,"response":)" + object_.in_progress();
    close_event(out);
    return {type, {std::move(out)}};
}

/// The item's id and where it stands in the output.
void ResponseEvents::append_place(std::string& out) const {
    out += R"(,"item_id":")" + items_.back().start.id + R"(","output_index":)" +
           std::to_string(items_.size() - 1);
    out += words(items_.back().start.kind).index;
}

TypedEvent ResponseEvents::part_event(std::string_view type, std::string_view part) {
    std::string out = open_event(type);
    append_place(out);
    out += R"(,"part":)";
    out += part;
    close_event(out);
    return {type, {std::move(out)}};
}

TypedEvent ResponseEvents::item_event(std::string_view type, std::string_view item) {
    std::string out = open_event(type);
    out += R"(,"output_index":)" + std::to_string(items_.size() - 1) + R"(,"item":)";
    out += item;
    close_event(out);
    return {type, {std::move(out)}};
}

std::vector<TypedEvent> ResponseEvents::open(ItemStart start) {
    items_.push_back({.start = std::move(start)});
    has_open_item_ = true;
    const ItemStart& item = items_.back().start;
    delta_head_.clear();
    append_place(delta_head_);
    delta_head_ += R"(,"delta":")";
    std::vector<TypedEvent> out;
    out.push_back(item_event("response.output_item.added", item_of(item, "in_progress", "", "")));
    if (const std::string_view type = words(item.kind).part_added; !type.empty())
        out.push_back(part_event(type, part_of(item.kind, "", "")));
    return out;
}

TypedEvent ResponseEvents::delta(std::string_view text, std::string_view logprobs) {
    Item& item = items_.back();
    item.text += text;
    if (!logprobs.empty()) {
        if (!item.logprobs.empty()) item.logprobs += ',';
        item.logprobs += logprobs;
    }
    const std::string_view type = words(item.start.kind).delta;
    EventText out{open_event(type)};
    out.json.reserve(out.json.size() + delta_head_.size() + text.size() + logprobs.size() +
                     stream_id_.size() + 32);
    out.json += delta_head_;
    append_escaped(out.json, text);
    if (logprobs.empty()) out.insert_at = out.json.size();
    out.json += '"';
    if (item.start.kind == ItemKind::message) {
        out.json += R"(,"logprobs":[)";
        out.json += logprobs;
        out.json += ']';
    }
    close_event(out.json);
    return {type, std::move(out)};
}

std::vector<TypedEvent> ResponseEvents::close(bool is_complete) {
    Item& item = items_.back();
    has_open_item_ = false;
    item.is_complete = is_complete;
    const Words& word = words(item.start.kind);
    const bool has_part = !word.part_done.empty();
    const std::string part = has_part ? part_of(item.start.kind, item.text, item.logprobs) : "";
    item.done = item_of(item.start, is_complete ? "completed" : "incomplete", part, item.text);

    std::vector<TypedEvent> out;
    std::string done = open_event(word.done);
    append_place(done);
    done += R"(,")" + std::string{word.text} + R"(":)";
    append_string(done, item.text);
    if (item.start.kind == ItemKind::message) done += R"(,"logprobs":[)" + item.logprobs + ']';
    close_event(done);
    out.push_back({word.done, {std::move(done)}});
    if (has_part) out.push_back(part_event(word.part_done, part));
    out.push_back(item_event("response.output_item.done", item.done));
    return out;
}

TypedEvent ResponseEvents::terminal(ResponseEnd end, const Usage& usage, const ApiError* error,
                                    std::int64_t completed_at) {
    const std::string_view type = end == ResponseEnd::completed ? "response.completed"
                                  : end == ResponseEnd::failed  ? "response.failed"
                                                                : "response.incomplete";
    std::string out = open_event(type);
    out += R"(,"response":)" + response_object(end, usage, error, completed_at);
    close_event(out);
    return {type, {std::move(out)}};
}

std::string ResponseEvents::response_object(ResponseEnd end, const Usage& usage,
                                            const ApiError* error,
                                            std::int64_t completed_at) const {
    return object_.ended(end, end == ResponseEnd::failed ? "" : output(), usage, error,
                         completed_at);
}

std::string ResponseEvents::output() const {
    std::string out;
    for (const Item& item : items_) {
        if (!out.empty()) out += ',';
        out += item.done;
    }
    return out;
}

bool ResponseEvents::has_answer() const {
    return std::ranges::any_of(items_, [](const Item& item) {
        return item.start.kind == ItemKind::message || item.start.kind == ItemKind::call;
    });
}

json::array ResponseEvents::to_input(ResponseEnd end) const {
    json::array out;
    for (const Item& item : items_) {
        const auto part = [&](std::string_view type) {
            return json::array{json::object{{"type", type}, {"text", item.text}}};
        };
        switch (item.start.kind) {
            case ItemKind::message:
                out.push_back({{"type", "message"},
                               {"id", item.start.id},
                               {"role", "assistant"},
                               {"content", part("output_text")}});
                break;
            case ItemKind::reasoning:
            case ItemKind::summary:
                out.push_back({{"type", "reasoning"},
                               {"id", item.start.id},
                               {"summary", json::array{}},
                               {"content", part("reasoning_text")}});
                break;
            case ItemKind::call:
                if (!item.is_complete && end != ResponseEnd::completed) break;
                out.push_back({{"type", "function_call"},
                               {"id", item.start.id},
                               {"call_id", item.start.call_id},
                               {"name", item.start.name},
                               {"arguments", item.text}});
        }
    }
    return out;
}

}  // namespace server
