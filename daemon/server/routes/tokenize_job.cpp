#include "daemon/server/core.hpp"
#include "daemon/server/protocol/json_text.hpp"
#include "daemon/server/protocol/tokenize_request.hpp"
#include "daemon/server/routes/jobs.hpp"
#include "daemon/server/session/prepare.hpp"

#include <utility>

namespace server {
namespace {

/// Work whose answer is one object, made on a helper thread.
class HelperJob final : public HttpJob, public std::enable_shared_from_this<HelperJob> {
public:
    using Work = std::function<Parsed<std::string>(const Model&, const std::function<bool()>&)>;

    HelperJob(Core& core, std::shared_ptr<const Model> model, HttpExchange& exchange)
        : core_{core}, model_{std::move(model)}, exchange_{exchange} {}

    void start(std::size_t bytes, Work work) {
        const bool is_taken = core_.helper.run(
            bytes,
            [self = weak_from_this(), model = model_, work = std::move(work)] {
                auto body = work(*model, [&self] { return self.expired(); });
                return [self, body = std::move(body)]() mutable {
                    if (const auto job = self.lock()) job->end(std::move(body));
                };
            },
            [self = weak_from_this()](const std::string& why) {
                ApiError error = internal_error();
                error.log = why;
                if (const auto job = self.lock()) job->end(std::move(error));
            });
        if (!is_taken) end(overloaded("Too many requests wait to be tokenized."));
    }

    void abort() override { end(from_errc(base::Errc::draining)); }

private:
    void end(Parsed<std::string> body) {
        if (exchange_.is_finished()) return;
        if (body) return exchange_.reply({.body = std::move(*body)});
        if (!body.error().log.empty()) core_.report("tokenizing failed: " + body.error().log);
        core_.count_rejection(body.error());
        exchange_.refuse(body.error());
    }

    Core& core_;
    std::shared_ptr<const Model> model_;
    HttpExchange& exchange_;
};

std::string tokens_object(const Model& model, const std::vector<std::int32_t>& ids,
                          bool with_pieces) {
    std::string tokens, pieces;
    for (const std::int32_t id : ids) {
        if (!tokens.empty()) tokens += ',';
        tokens += std::to_string(id);
        if (!with_pieces) continue;
        if (!pieces.empty()) pieces += ',';
        append_string(pieces, lossy_text(model.codec->piece(id, true)));
    }
    return R"({"count":)" + std::to_string(ids.size()) + R"(,"max_model_len":)" +
           std::to_string(model.card.context_length) + R"(,"tokens":[)" + tokens +
           R"(],"token_strs":)" + (with_pieces ? '[' + pieces + ']' : "null") + '}';
}

Parsed<std::string> tokenize(const Model& model, metrics::Server& metrics,
                             const TokenizeRequest& request,
                             const std::function<bool()>& is_cancelled) {
    if (request.text) {
        const auto ids =
            model.codec->encode(*request.text, request.add_special, request.parse_special);
        if (!ids) {
            return invalid_value("prompt", "The text could not be tokenized: " +
                                               ids.error().message() + ".");
        }
        return tokens_object(model, *ids, request.with_pieces);
    }
    ChatInputs inputs;
    inputs.messages = request.messages;
    inputs.functions = request.functions;
    inputs.template_kwargs = request.template_kwargs;
    const auto prompt = render_chat(model, metrics, inputs);
    if (is_cancelled()) return from_errc(base::Errc::cancelled);
    if (prompt) return tokens_object(model, prompt->ids, request.with_pieces);
    ApiError error = prompt.error();
    if (error.param == "input") error.param = "messages";
    return error;
}

std::string detokenize(const Model& model, const std::vector<std::int32_t>& ids) {
    std::string bytes;
    for (const std::int32_t id : ids) bytes += model.codec->piece(id, true);
    std::string out = R"({"prompt":)";
    append_string(out, lossy_text(bytes));
    return out += '}';
}

/// Reads the body, and refuses the request where that fails.
template <class Parse>
auto read(Core& core, const Model& model, const HttpRequest& http, HttpExchange& exchange,
          Parse parse) -> std::optional<std::decay_t<decltype(*parse(boost::json::object{}, ParseContext{}))>> {
    std::optional<ApiError> error;
    const auto body = parse_object(http.body, core.options.strict_parameters);
    if (!body) {
        error = body.error();
    } else if (auto request = parse(*body, core.parse_context(model, true)); !request) {
        error = request.error();
    } else if (!request->model.empty() && !model.is_named(request->model)) {
        error = model_not_found(request->model);
    } else {
        return std::move(*request);
    }
    core.count_rejection(*error);
    exchange.refuse(*error);
    return std::nullopt;
}

}  // namespace

std::shared_ptr<HttpJob> serve_tokenize(Core& core, const HttpRequest& http,
                                        HttpExchange& exchange) {
    const auto model = core.model();
    auto request = read(core, *model, http, exchange, parse_tokenize_request);
    if (!request) return nullptr;
    auto job = std::make_shared<HelperJob>(core, model, exchange);
    job->start(http.body.size(), [request = std::move(*request), &core](
                                     const Model& m, const std::function<bool()>& is_cancelled) {
        return tokenize(m, core.metrics, request, is_cancelled);
    });
    return job;
}

std::shared_ptr<HttpJob> serve_detokenize(Core& core, const HttpRequest& http,
                                          HttpExchange& exchange) {
    const auto model = core.model();
    auto request = read(core, *model, http, exchange, parse_detokenize_request);
    if (!request) return nullptr;
    auto job = std::make_shared<HelperJob>(core, model, exchange);
    job->start(http.body.size(),
               [ids = std::move(request->ids)](const Model& m, const std::function<bool()>&) {
                   return Parsed<std::string>{detokenize(m, ids)};
               });
    return job;
}

}  // namespace server
