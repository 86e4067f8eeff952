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
      outbox_{core.options.limits.send_high_bytes, &flow_},
      wake_{std::move(wake)} {}

void HttpExchange::reply(HttpReply reply) {
    CHECK(!is_streaming_ && !is_finished_);
    reply_ = std::move(reply);
    is_finished_ = true;
    wake_();
}

void HttpExchange::refuse(const ApiError& error) {
    if (!is_streaming_) return reply(error_reply(error));
    send({error_body(error)}, "error");
    finish();
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
