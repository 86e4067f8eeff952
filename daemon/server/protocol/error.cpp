#include "daemon/server/protocol/error.hpp"

#include "daemon/server/protocol/excerpt.hpp"
#include "daemon/server/protocol/json_text.hpp"

#include <utility>

namespace server {
namespace {

ApiError server_error(int status, std::string code, std::string message, int retry_after_seconds) {
    return {status, "server_error", std::move(code), std::move(message), "", retry_after_seconds};
}

std::string quoted(std::string_view param) {
    return "'" + std::string{param} + "'";
}

}  // namespace

ApiError invalid_json(std::string message) {
    return invalid_request("invalid_json", "", std::move(message));
}

ApiError missing_parameter(std::string_view param) {
    return invalid_request("missing_required_parameter", param,
                           "Missing required parameter: " + quoted(param) + ".");
}

ApiError wrong_type(std::string_view param, std::string_view expected) {
    return invalid_request(
        "invalid_type", param,
        "Invalid type for " + quoted(param) + ": expected " + std::string{expected} + ".");
}

ApiError invalid_value(std::string_view param, std::string message) {
    return invalid_request("invalid_value", param, std::move(message));
}

ApiError invalid_request(std::string code, std::string_view param, std::string message) {
    return {400, "invalid_request_error", std::move(code), std::move(message), std::string{param}};
}

ApiError model_not_found(std::string_view model) {
    ApiError error = invalid_request(
        "model_not_found", "model",
        "The model " + quoted(excerpt(model, 128)) + " does not exist here; see /v1/models.");
    error.status = 404;
    return error;
}

ApiError context_length_exceeded(std::size_t prompt_tokens, int context_length,
                                 std::string_view param) {
    return invalid_request("context_length_exceeded", param,
                           "The input has " + std::to_string(prompt_tokens) +
                               " tokens; this model's context holds " +
                               std::to_string(context_length) + ", output included.");
}

ApiError previous_not_found(std::string_view id) {
    return invalid_request(
        "previous_response_not_found", "previous_response_id",
        "Previous response with id '" + excerpt(id, 128) + "' not found.");
}

ApiError not_ready(std::string_view reason) {
    return server_error(503, "model_not_ready",
                        "No passing assay for the loaded model: " + std::string{reason} + ".", 5);
}

ApiError draining() {
    return server_error(503, "draining", "The daemon is shutting down.", 1);
}

ApiError overloaded(std::string message) {
    return server_error(503, "server_overloaded", std::move(message), 2);
}

bool is_clients_mistake(const ApiError& error) {
    return error.status < 500 && error.status != 429 &&
           error.code != "websocket_connection_limit_reached";
}

ApiError rate_limited(std::string message, int retry_after_seconds) {
    return {429, "rate_limit_error", "rate_limit_exceeded", std::move(message), "", retry_after_seconds};
}

ApiError too_many_connections(std::string message) {
    return {429, "rate_limit_error", "too_many_connections", std::move(message), "", 2};
}

ApiError from_errc(base::Errc errc, std::string_view detail) {
    using base::Errc;
    switch (errc) {
        case Errc::queue_full:
            return overloaded("The admission queue is full.");
        case Errc::key_in_flight:
            return rate_limited("This key has as many requests in flight as it may.", 1);
        case Errc::key_tokens:
            return rate_limited("This key's tokens of this minute are used up.", 10);
        case Errc::kv_exhausted:
            return overloaded("The KV cache has no room for a request of this size.");
        case Errc::prompt_too_long:
            return invalid_request("context_length_exceeded", "input",
                                   "The input does not fit the model's context.");
        case Errc::cancelled:
            return {499, "invalid_request_error", "cancelled", "The request was cancelled.", ""};
        case Errc::draining:
            return draining();
        case Errc::not_ready:
            return not_ready(detail.empty() ? "the model is being proved" : detail);
        case Errc::template_failed:
            return invalid_request(
                "template_failed", "input",
                "The model's chat template refused this conversation" +
                    (detail.empty() ? std::string{"."}
                                    : ": " + excerpt(detail, 500)));
        case Errc::template_broken: {
            ApiError error = server_error(
                500, "server_error", "The chat template could not be rendered; see the server log.",
                0);
            error.log = detail;
            return error;
        }
        case Errc::device_lost:
            return server_error(500, "server_error", "The backend failed; see the server log.", 0);
        case Errc::deadline:
            return server_error(504, "deadline_exceeded", "The request's time is over.", 0);
        case Errc::queue_timeout:
            return overloaded("The request waited longer to be admitted than this server allows.");
    }
    return internal_error();
}

ApiError internal_error() {
    return server_error(500, "server_error", "Internal error; see the server log.", 0);
}

namespace {

void append_error_object(std::string& out, const ApiError& error, bool with_headers) {
    out += R"({"message":)";
    append_string(out, error.message);
    out += R"(,"type":)";
    append_string(out, error.type);
    out += R"(,"param":)";
    append_string_or_null(out, error.param);
    out += R"(,"code":)";
    append_string_or_null(out, error.code);
    if (with_headers && error.retry_after_seconds > 0)
        out +=
            R"(,"headers":{"retry-after":")" + std::to_string(error.retry_after_seconds) + R"("})";
    out += '}';
}

}  // namespace

std::string error_body(const ApiError& error) {
    std::string out = R"({"error":)";
    append_error_object(out, error, false);
    out += '}';
    return out;
}

std::string error_event(const ApiError& error, std::string_view stream_id) {
    std::string out =
        R"({"type":"error","status":)" + std::to_string(error.status) + R"(,"error":)";
    append_error_object(out, error, true);
    if (!stream_id.empty()) {
        out += R"(,"stream_id":)";
        append_string(out, stream_id);
    }
    out += '}';
    return out;
}

}  // namespace server
