#include "daemon/server/session/http_exchange.hpp"

#include "daemon/base/check.hpp"
#include "daemon/server/core.hpp"

namespace server {

HttpReply error_reply(const ApiError& error) {
    HttpReply reply;
    reply.status = error.status;
    reply.body = error_body(error);
    if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    if (error.retry_after_seconds > 0)
        reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after_seconds));
    return reply;
}

HttpExchange::HttpExchange(Core& core, std::function<void()> wake)
    : flow_{core.dispatcher, core.metrics, core.options.limits.send_budget_bytes},
      outbox_{core.options.limits.send_high_bytes, core.options.limits.send_hard_bytes, &flow_},
      wake_{std::move(wake)} {}

void HttpExchange::reply(HttpReply reply) {
    CHECK(!is_streaming_ && !is_finished_);
    reply_ = std::move(reply);
    is_finished_ = true;
    wake_();
}

Outbox::Serial HttpExchange::send(EventText event, std::string_view name) {
    CHECK(!is_finished_);
    is_streaming_ = true;
    std::string head;
    if (!name.empty()) head = "event: " + std::string{name} + "\n";
    head += "data: ";
    if (event.insert_at != 0) event.insert_at += head.size();
    event.json = head + event.json + "\n\n";
    const Outbox::Serial serial = outbox_.push(std::move(event));
    wake_();
    return serial;
}

bool HttpExchange::merge(Outbox::Serial serial, std::string_view text) {
    // Looked at where text is added, not where a stream ends: the last events may be large, but
    // they are few and bounded by the text.
    if (outbox_.is_over_hard() && !std::exchange(is_too_slow_, true)) wake_();
    return is_too_slow_ || outbox_.merge(serial, text);
}

void HttpExchange::finish() {
    is_finished_ = true;
    wake_();
}

void HttpExchange::keep_alive() {
    is_streaming_ = true;
    outbox_.push({": keep-alive\n\n"});
    wake_();
}

}  // namespace server
