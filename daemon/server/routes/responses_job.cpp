#include "daemon/server/core.hpp"
#include "daemon/server/protocol/conversation.hpp"
#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/routes/jobs.hpp"
#include "daemon/server/session/response_turn.hpp"

#include <utility>

namespace server {
namespace {

/// POST /v1/responses: one turn, as server-sent events or as one object.
class ResponsesJob final : public HttpJob, public EventSink {
public:
    ResponsesJob(Core& core, std::shared_ptr<const Model> model, ResponseRequest request,
                 boost::json::array context, const HttpRequest& http, HttpExchange& exchange)
        : exchange_{exchange}, is_stream_{request.stream}, is_stored_{request.store} {
        const TurnOrigin origin{http.client, http.received,
                                is_stream_ ? metrics::Transport::sse : metrics::Transport::http,
                                http.log_id, is_stream_ ? &exchange.flow() : nullptr,
                                http.key_label};
        if (is_stream_) exchange.expect_stream();
        turn_ = std::make_shared<ResponseTurn>(core, std::move(model), std::move(request),
                                               std::move(context), *this, origin);
    }

    void start() { turn_->start(); }
    void abort() override {
        if (const auto turn = turn_) turn->fail(base::Errc::draining);
    }

private:
    Outbox::Serial send(std::string_view type, EventText event) override {
        return is_stream_ ? exchange_.send(std::move(event), type) : 0;
    }
    bool merge(Outbox::Serial serial, std::string_view text) override {
        return is_stream_ && exchange_.merge(serial, text);
    }
    void refuse(const ApiError& error) override { exchange_.refuse(error); }
    void done(ResponseTurn& turn, bool is_success) override {
        if (exchange_.is_finished()) return;  // refused
        if (is_success && is_stored_) static_cast<void>(turn.past());
        if (is_stream_)
            exchange_.finish();
        else if (turn.error())
            exchange_.refuse(*turn.error());
        else
            exchange_.reply({.body = turn.final_object()});
    }

    HttpExchange& exchange_;
    bool is_stream_;
    bool is_stored_;
    std::shared_ptr<ResponseTurn> turn_;  // weakly held by work on the helper thread
};

}  // namespace

std::shared_ptr<HttpJob> serve_responses(Core& core, const HttpRequest& http,
                                         HttpExchange& exchange) {
    const auto refuse = [&](const ApiError& error) {
        core.count_rejection(error);
        exchange.refuse(error);
        return std::shared_ptr<HttpJob>{};
    };
    const auto model = core.model();
    const auto body = parse_object(http.body, core.options.strict_parameters);
    if (!body) return refuse(body.error());
    auto request = parse_response_request(*body, core.parse_context(*model, true));
    if (!request) return refuse(request.error());
    if (!model->is_named(request->model)) return refuse(model_not_found(request->model));
    const auto now = base::Clock::now();
    boost::json::array context;
    if (const std::string& previous = request->previous_response_id; !previous.empty()) {
        const auto parent = core.store.find(previous, http.key_label, now);
        if (parent == nullptr) return refuse(previous_not_found(previous));
        context = parent->items;
    }
    if (request->input) {
        const auto find_item = [&](std::string_view id) {
            return core.store.find_item(id, http.key_label, now);
        };
        if (const auto error = resolve_references(*request->input, find_item))
            return refuse(*error);
        for (boost::json::value& item : *request->input) context.push_back(std::move(item));
        request->input.reset();
    }
    if (const auto error = check_call_pairs(context)) return refuse(*error);
    auto job = std::make_shared<ResponsesJob>(core, model, std::move(*request), std::move(context),
                                              http, exchange);
    job->start();
    return job;
}

std::shared_ptr<HttpJob> serve_stored_response(Core& core, const HttpRequest& http,
                                               HttpExchange& exchange) {
    const auto now = base::Clock::now();
    std::string_view id = std::string_view{http.path}.substr(std::string_view{kStored}.size());
    if (id.ends_with('/')) id.remove_suffix(1);
    const auto found = core.store.find(id, http.key_label, now);
    if (found == nullptr) {
        ApiError error = invalid_request("not_found", "", "No response with this id is stored.");
        error.status = 404;
        exchange.refuse(error);
    } else if (http.method == "DELETE") {
        core.store.erase(id, http.key_label, now);
        exchange.reply({.body = R"({"id":")" + found->id +
                                R"(","object":"response","deleted":true})"});
    } else {
        exchange.reply({.body = found->object});
    }
    return nullptr;
}

}  // namespace server
