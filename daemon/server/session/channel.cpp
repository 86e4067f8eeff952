#include "daemon/server/session/channel.hpp"

#include "daemon/server/protocol/conversation.hpp"
#include "daemon/server/protocol/excerpt.hpp"
#include "daemon/server/protocol/json_text.hpp"

#include <boost/json/serialize.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace server {
namespace json = boost::json;
namespace {

constexpr auto kBadMessageWindow = std::chrono::seconds{10};

ApiError stream_limit(std::size_t max_lanes) {
    return invalid_request("websocket_stream_limit_reached", "stream_id",
                           "This connection already uses " + std::to_string(max_lanes) +
                               " distinct stream_id values.");
}

ApiError queue_full() {
    ApiError error{429,
                   "rate_limit_error",
                   "websocket_queue_full",
                   "Too many responses are queued on this connection.",
                   "",
                   1};
    return error;
}

ApiError too_old() {
    return invalid_request("websocket_connection_limit_reached", "",
                           "This connection has reached its age limit. Open a new one.");
}

ApiError nothing_to_cancel() {
    return invalid_request("response_not_active", "response_id", "There is nothing to cancel.");
}

std::string_view string_member(const json::object& message, std::string_view key) {
    const json::value* value = message.if_contains(key);
    if (value == nullptr || !value->is_string()) return {};
    return {value->get_string().data(), value->get_string().size()};
}

bool has_bad_stream_id(const json::object& message) {
    const json::value* given = message.if_contains("stream_id");
    return given != nullptr && !given->is_null() && !is_stream_id(string_member(message, "stream_id"));
}

ApiError bad_stream_id() {
    return invalid_request("invalid_stream_id", "stream_id",
                           "stream_id must be 1 to 256 characters from A-Z a-z 0-9 _ - .");
}

/// The lane that a message names, where that is possible: "" for the default one or a bad name.
std::string_view lane_of(const json::object& message) {
    const std::string_view id = string_member(message, "stream_id");
    return is_stream_id(id) ? id : std::string_view{};
}

}  // namespace

Channel::Channel(Core& core, Outbox& outbox, Flow& flow, std::uint64_t client, std::string log_id,
                 std::string owner, std::function<void()> wake)
    : core_{core},
      outbox_{outbox},
      flow_{flow},
      client_{client},
      log_id_{std::move(log_id)},
      owner_{std::move(owner)},
      wake_{std::move(wake)} {}

Channel::~Channel() {
    core_.metrics.ws_streams.add(-static_cast<double>(num_in_flight_));
}

void Channel::on_message(std::string_view text) {
    core_.metrics.ws_messages(metrics::Direction::in).add();
    const auto message = parse_object(text, core_.options.strict_parameters);
    if (!message) {
        count_bad_message();
        return send_error(message.error(), "");
    }
    const json::value* type = message->if_contains("type");
    if (type == nullptr || type->is_null()) {
        count_bad_message();
        return send_error(missing_parameter("type"), lane_of(*message));
    }
    if (!type->is_string()) {
        count_bad_message();
        return send_error(wrong_type("type", "a string"), lane_of(*message));
    }
    const std::string_view name{type->get_string().data(), type->get_string().size()};
    if (name == "response.create") return on_create(*message, text.size());
    if (name == "response.cancel") return on_cancel(*message);
    if (name == "response.steer") return on_steer(*message);
    if (name == "response.processed") return;  // a receipt that some clients send
    count_bad_message();
    send_error(invalid_request("unknown_event_type", "type",
                               "Unknown event type: '" + excerpt(name, 64) + "'."),
               lane_of(*message));
}

void Channel::on_create(const json::object& message, std::size_t bytes) {
    const std::string_view stream_id = lane_of(message);
    const auto refuse = [&](const ApiError& error) {
        if (is_clients_mistake(error)) count_bad_message();
        core_.count_rejection(error);
        send_error(error, stream_id);
    };
    if (has_bad_stream_id(message)) return refuse(bad_stream_id());
    auto lane = lanes_.find(stream_id);
    if (lane == lanes_.end()) {
        const std::size_t num_named = lanes_.size() - (lanes_.contains("") ? 1 : 0);
        if (!stream_id.empty() && num_named >= core_.options.limits.max_lanes)
            return refuse(stream_limit(core_.options.limits.max_lanes));
        lane = lanes_.try_emplace(std::string{stream_id}, *this, std::string{stream_id}).first;
    }
    if (waiting_.size() >= core_.options.limits.max_waiting ||
        waiting_bytes_ + bytes > core_.options.limits.max_waiting_bytes)
        return refuse(queue_full());

    // Mistakes wait their turn too: on a busy lane an error would be taken for the end of what
    // runs.
    Waiting waiting{&lane->second, read_create(message), nullptr, base::Clock::now(), bytes};
    if (waiting.request && !waiting.request->previous_response_id.empty())
        waiting.parent = find_history(waiting.request->previous_response_id);
    waiting_bytes_ += bytes;
    ++lane->second.num_waiting;
    waiting_.push_back(std::move(waiting));
    pump();
}

Parsed<ResponseRequest> Channel::read_create(const json::object& message) const {
    if (is_expired_) return too_old();
    if (auto refusal = core_.refusal()) return std::move(*refusal);
    const auto model = core_.model();
    auto request = parse_response_request(message, core_.parse_context(*model, false));
    if (request && !model->is_named(request->model)) return model_not_found(request->model);
    return request;
}

void Channel::pump() {
    if (is_pumping_) return;  // a turn that ends at once is picked up by the loop that began it
    is_pumping_ = true;
    for (auto next = waiting_.begin();
         next != waiting_.end() && num_in_flight_ < core_.options.limits.max_in_flight;) {
        if (next->lane->turn != nullptr) {
            ++next;
            continue;
        }
        Waiting waiting = std::move(*next);
        waiting_.erase(next);
        waiting_bytes_ -= waiting.bytes;
        --waiting.lane->num_waiting;
        start(std::move(waiting));
        next = waiting_.begin();
    }
    is_pumping_ = false;
}

void Channel::start(Waiting waiting) {
    Lane& lane = *waiting.lane;
    const auto refuse = [&](const ApiError& error) {
        if (is_clients_mistake(error)) count_bad_message();
        core_.count_rejection(error);
        send_error(error, lane.id());
    };
    if (!waiting.request) return refuse(waiting.request.error());
    ResponseRequest& request = *waiting.request;
    json::array context;
    std::shared_ptr<const PastResponse> parent;
    if (!request.previous_response_id.empty()) {
        parent = waiting.parent ? waiting.parent : find_history(request.previous_response_id);
        if (parent == nullptr) return refuse(previous_not_found(request.previous_response_id));
        context = parent->items;
    }
    if (request.input) {
        const auto find_item = [&](std::string_view id) -> const json::value* {
            for (const json::value& item : context)
                if (string_member(item.get_object(), "id") == id) return &item;
            return core_.store.find_item(id, owner_, base::Clock::now());
        };
        if (const auto error = resolve_references(*request.input, find_item)) return refuse(*error);
        for (json::value& item : *request.input) context.push_back(std::move(item));
        request.input.reset();
    }
    if (const auto error = check_call_pairs(context)) {
        // A continuation that fails on its own lane takes what it continued with it.
        if (parent != nullptr && lane.history == parent) {
            history_bytes_ -= lane.history->bytes;
            recently_used_.remove(&lane);
            lane.history.reset();
        }
        return refuse(*error);
    }
    const TurnOrigin origin{client_, waiting.received, metrics::Transport::ws, log_id_,
                            &flow_, owner_};
    lane.parent = std::move(parent);
    lane.turn = std::make_shared<ResponseTurn>(core_, core_.model(), std::move(request),
                                               std::move(context), lane, origin);
    ++num_in_flight_;
    ++num_responses_;
    core_.metrics.ws_streams.add(1);
    const std::shared_ptr<ResponseTurn> turn = lane.turn;  // start() may end it
    turn->start();
}

void Channel::end(Lane& lane, ResponseTurn& turn, bool is_success) {
    if (is_success) {
        remember(lane, turn);
    } else if (lane.parent != nullptr && lane.history == lane.parent) {
        history_bytes_ -= lane.history->bytes;
        recently_used_.remove(&lane);
        lane.history.reset();
    }
    lane.parent.reset();
    lane.turn.reset();
    --num_in_flight_;
    core_.metrics.ws_streams.add(-1);
    pump();
    wake_();
}

void Channel::remember(Lane& lane, const ResponseTurn& turn) {
    auto history = turn.past();
    if (lane.history != nullptr) {
        history_bytes_ -= lane.history->bytes;
        recently_used_.remove(&lane);
    }
    history_bytes_ += history->bytes;
    lane.history = std::move(history);
    lane.next_number = turn.next_sequence_number();
    recently_used_.push_back(&lane);
    while (history_bytes_ > core_.options.limits.max_history_bytes) {
        Lane& oldest = *recently_used_.front();
        recently_used_.pop_front();
        history_bytes_ -= oldest.history->bytes;
        oldest.history.reset();
    }
}

std::shared_ptr<const PastResponse> Channel::find_history(std::string_view response_id) const {
    for (const auto& [id, lane] : lanes_)
        if (lane.history != nullptr && lane.history->id == response_id)
            return lane.history;
    return core_.store.find(response_id, owner_, base::Clock::now());
}

void Channel::on_cancel(const json::object& message) {
    const auto refuse = [&](const ApiError& error) {
        count_bad_message();
        send_error(error, lane_of(message));
    };
    if (has_bad_stream_id(message)) return refuse(bad_stream_id());
    if (const json::value* id = message.if_contains("response_id"); id != nullptr && !id->is_null() && !id->is_string())
        return refuse(wrong_type("response_id", "a string"));
    const std::string_view response_id = string_member(message, "response_id");
    const std::string_view stream_id = lane_of(message);
    for (auto& [id, lane] : lanes_) {
        if (lane.turn == nullptr) continue;
        if (response_id.empty() ? id != stream_id : lane.turn->response_id() != response_id)
            continue;
        const std::shared_ptr<ResponseTurn> turn = lane.turn;
        return turn->cancel();
    }
    // A lane whose next response still waits for one of the places in flight.
    for (auto waiting = waiting_.begin(); response_id.empty() && waiting != waiting_.end();
         ++waiting) {
        if (waiting->lane->id() != stream_id) continue;
        waiting_bytes_ -= waiting->bytes;
        --waiting->lane->num_waiting;
        waiting_.erase(waiting);
        return send_error(invalid_request("response_cancelled", "",
                                          "The response was cancelled before it began."),
                          stream_id);
    }
    count_bad_message();
    send_error(nothing_to_cancel(), stream_id);
}

void Channel::on_steer(const json::object& message) {
    const std::string_view target = string_member(message, "previous_response_id");
    std::string_view code = "response_not_found";
    std::string_view text = "No response with this id runs on this connection.";
    std::string_view stream_id;
    int number = 0;
    for (auto& [id, lane] : lanes_) {
        if (lane.turn != nullptr && lane.turn->response_id() == target) {
            code = "steering_not_supported";
            text = "This server does not support steering.";
            number = lane.turn->take_sequence_number();
            stream_id = id;
        } else if (lane.history != nullptr && lane.history->id == target) {
            code = "response_already_completed";
            text = "This response has already ended.";
            number = lane.next_number++;
            stream_id = id;
        }
    }
    if (code == "response_not_found") count_bad_message();
    const auto member = [&](std::string_view key) {
        const json::value* value = message.if_contains(key);
        return value == nullptr ? json::value(nullptr) : *value;
    };
    json::object event{
        {"type", "response.steer.failed"},
        {"sequence_number", number},
        {"error",
         json::object{{"type", "invalid_request_error"}, {"code", code}, {"message", text}}},
        {"steer", json::object{{"previous_response_id", member("previous_response_id")},
                               {"input", member("input")}}}};
    if (!stream_id.empty()) event["stream_id"] = stream_id;
    push({json::serialize(event)});
}

void Channel::expire() {
    if (is_expired_) return;
    is_expired_ = true;
    if (is_idle()) send_error(too_old(), "");
}

void Channel::abort() {
    for (Waiting& waiting : std::exchange(waiting_, {})) send_error(draining(), waiting.lane->id());
    for (auto& [id, lane] : lanes_)
        if (const std::shared_ptr<ResponseTurn> turn = lane.turn) turn->fail(base::Errc::draining);
}

void Channel::leave() {
    waiting_.clear();
    for (auto& [id, lane] : lanes_) {
        if (lane.turn == nullptr) continue;
        lane.turn.reset();  // cancels
        --num_in_flight_;
        core_.metrics.ws_streams.add(-1);
    }
    recently_used_.clear();
    lanes_.clear();
}

void Channel::send_error(const ApiError& error, std::string_view stream_id) {
    push({error_event(error, stream_id)});
}

Outbox::Serial Channel::push(EventText event) {
    const Outbox::Serial serial = outbox_.push(std::move(event));
    core_.metrics.ws_messages(metrics::Direction::out).add();
    core_.metrics.send_queue_bytes.observe(static_cast<double>(outbox_.bytes()));
    wake_();
    return serial;
}

void Channel::count_bad_message() {
    const auto now = base::Clock::now();
    if (now - bad_since_ > kBadMessageWindow) {
        bad_since_ = now;
        num_bad_ = 0;
    }
    if (++num_bad_ > core_.options.limits.max_bad_messages) {
        is_abusive_ = true;
        wake_();
    }
}

Outbox::Serial Channel::Lane::send(std::string_view, EventText event) {
    return channel_.push(std::move(event));
}

bool Channel::Lane::merge(Outbox::Serial serial, std::string_view text) {
    return channel_.outbox_.merge(serial, text);
}

void Channel::Lane::done(ResponseTurn& ended, bool is_success) {
    channel_.end(*this, ended, is_success);
}

}  // namespace server
