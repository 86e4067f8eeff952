#include "daemon/server/routes/router.hpp"

#include "daemon/server/core.hpp"
#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/routes/jobs.hpp"

#include <utility>

namespace server {
namespace {

constexpr std::string_view kModels = "/v1/models";

HttpReply plain_text(int status, std::string body) {
    return {status, std::move(body), "text/plain; charset=utf-8", {}};
}

HttpReply readiness(const Core& core) {
    if (core.state.is_ready() && core.model() != nullptr) return plain_text(200, "ready\n");
    HttpReply reply = plain_text(503, core.state.reason() + "\n");
    reply.headers.emplace_back("Retry-After", "5");
    return reply;
}

std::string model_object(const ModelCard& card, std::string_view id) {
    std::string out = R"({"id":)";
    append_string(out, id);
    out += R"(,"object":"model","created":)" + std::to_string(card.created) + R"(,"owned_by":)";
    append_string(out, card.owned_by);
    out +=
        R"(,"context_length":)" + std::to_string(card.context_length) + R"(,"system_fingerprint":)";
    append_string(out, card.fingerprint);
    out += '}';
    return out;
}

HttpReply models(const Core& core, std::string_view path) {
    if (const auto refusal = core.refusal()) return error_reply(*refusal);
    const auto model = core.model();
    const ModelCard& card = model->card;
    HttpReply reply;
    const std::string_view rest = path.substr(kModels.size());
    if (rest.size() > 1) {  // one model
        const std::string_view name = rest.substr(1);
        if (!model->is_named(name)) return error_reply(model_not_found(name));
        reply.body = model_object(card, name);
        return reply;
    }
    reply.body = R"({"object":"list","data":[)" + model_object(card, card.id);
    for (const std::string& alias : card.aliases) reply.body += ',' + model_object(card, alias);
    reply.body += "]}";
    return reply;
}

HttpReply metrics_text(Core& core) {
    core.registry.gauge(metrics::Family::ready)
        .set(core.state.is_ready() && core.model() != nullptr ? 1 : 0);
    return {200, core.registry.render(), "text/plain; version=0.0.4; charset=utf-8", {}};
}

}  // namespace

Route find_route(std::string_view path) {
    if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    if (path == "/healthz") return Route::healthz;
    if (path == "/readyz") return Route::readyz;
    if (path == "/metrics") return Route::metrics;
    if (path == kModels || (path.starts_with(kModels) && path[kModels.size()] == '/'))
        return Route::models;
    if (path == "/v1/responses") return Route::responses;
    if (path.starts_with(kStored)) return Route::stored_response;
    if (path == "/v1/completions") return Route::completions;
    if (path == "/v1/chat/completions") return Route::chat_completions;
    if (path == "/tokenize") return Route::tokenize;
    if (path == "/detokenize") return Route::detokenize;
    return Route::none;
}

bool needs_key(Route route, bool metrics_need_key) {
    switch (route) {
        case Route::none:
        case Route::healthz:
        case Route::readyz:
            return false;
        case Route::metrics:
            return metrics_need_key;
        case Route::models:
        case Route::responses:
        case Route::stored_response:
        case Route::completions:
        case Route::chat_completions:
        case Route::tokenize:
        case Route::detokenize:
            return true;
    }
    return true;
}

std::string_view allowed_methods(Route route) {
    switch (route) {
        case Route::none:
        case Route::healthz:
        case Route::readyz:
        case Route::metrics:
        case Route::models:
            return "GET, HEAD";
        case Route::responses:
            return "GET, POST";
        case Route::stored_response:
            return "GET, DELETE";
        case Route::completions:
        case Route::chat_completions:
        case Route::tokenize:
        case Route::detokenize:
            return "POST";
    }
    return "";
}

std::shared_ptr<HttpJob> serve_request(Core& core, Route route, HttpRequest request,
                                       HttpExchange& exchange) {
    const auto answer = [&](HttpReply reply) {
        exchange.reply(std::move(reply));
        return std::shared_ptr<HttpJob>{};
    };
    const bool is_read = request.method == "GET" || request.method == "HEAD";
    const bool is_read_route = route == Route::healthz || route == Route::readyz ||
                               route == Route::metrics || route == Route::models;
    if (route == Route::none || (route == Route::metrics && !core.options.metrics)) {
        ApiError error = invalid_request("not_found", "", "There is nothing at this path.");
        error.status = 404;
        return answer(error_reply(error));
    }
    const bool is_allowed = route == Route::stored_response
                                ? request.method == "GET" || request.method == "DELETE"
                            : is_read_route ? is_read
                                            : request.method == "POST";
    if (!is_allowed) {
        ApiError error =
            invalid_request("method_not_allowed", "",
                            "This path does not take " + request.method.substr(0, 16) + ".");
        error.status = 405;
        HttpReply reply = error_reply(error);
        reply.headers.emplace_back("Allow", allowed_methods(route));
        return answer(std::move(reply));
    }
    switch (route) {
        case Route::healthz:
            return answer(plain_text(200, "ok\n"));
        case Route::readyz:
            return answer(readiness(core));
        case Route::metrics:
            return answer(metrics_text(core));
        case Route::models:
            return answer(models(core, request.path));
        case Route::stored_response:
            return serve_stored_response(core, request, exchange);
        case Route::none:
        case Route::responses:
        case Route::completions:
        case Route::chat_completions:
        case Route::tokenize:
        case Route::detokenize:
            break;
    }
    if (const auto refusal = core.refusal()) {
        core.count_rejection(*refusal);
        return answer(error_reply(*refusal));
    }
    if (route == Route::responses) return serve_responses(core, request, exchange);
    if (route == Route::completions) return serve_completions(core, request, exchange);
    if (route == Route::tokenize) return serve_tokenize(core, request, exchange);
    if (route == Route::detokenize) return serve_detokenize(core, request, exchange);
    return serve_chat_completions(core, request, exchange);
}

}  // namespace server
