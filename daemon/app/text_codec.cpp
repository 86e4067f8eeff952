#include "daemon/app/text_codec.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "daemon/base/error.hpp"
#include "daemon/text/chat_request.hpp"
#include "daemon/text/chat_template.hpp"
#include "daemon/text/control_guard.hpp"
#include "daemon/text/detokenizer.hpp"
#include "daemon/text/grammar/compile.hpp"
#include "daemon/text/reply/format.hpp"
#include "daemon/text/stop_strings.hpp"
#include "daemon/text/template_probe.hpp"
#include "daemon/text/tool_prompt.hpp"
#include "daemon/text/utf8.hpp"

namespace app {
namespace {

class Stream final : public server::TextStream {
public:
    /// @param marks  control tokens that print in any case, ascending; live as long as the codec
    Stream(const text::Tokenizer& tokenizer, server::TextStreamOptions options,
           std::span<const std::int32_t> marks)
        : detokenizer_{tokenizer, {.at_text_start = options.at_text_start}},
          render_special_{options.render_special},
          marks_{marks},
          stops_{options.stop},
          stop_texts_{std::move(options.stop)},
          include_stop_{options.include_stop} {}

    server::Decoded push(std::int32_t token) override {
        return take(detokenizer_.push(
            token, render_special_ || std::ranges::binary_search(marks_, token)));
    }

    std::string flush() override {
        if (stops_.is_stopped()) return {};
        std::string text = take(detokenizer_.flush()).text;
        return text + stops_.flush();
    }

private:
    server::Decoded take(const std::string& delta) {
        auto step = stops_.push(delta);
        if (step.found && include_stop_) step.emit += stop_texts_[*step.found];
        return {std::move(step.emit), step.found.has_value()};
    }

    text::Detokenizer detokenizer_;
    bool render_special_;
    std::span<const std::int32_t> marks_;
    text::StopStrings stops_;
    std::vector<std::string> stop_texts_;
    bool include_stop_;
};

/// A template, what it wants of its messages and how replies to it are written; found out once.
struct ChatTemplate {
    std::string source;
    text::TemplateTraits traits;
    const reply::Format* format = nullptr;
    std::vector<std::int32_t> marks;  // control tokens that the format's marks are made of, ascending
};

class Codec final : public server::TextCodec {
public:
    Codec(const text::Tokenizer& tokenizer, const base::Metadata& metadata, const std::string& override_source,
          text::TemplateWorker* worker)
        : tokenizer_{tokenizer}, worker_{worker} {
        plain_ = load(text::choose_template(metadata, override_source, false), false);
        with_tools_ = load(text::choose_template(metadata, override_source, true), true);
    }

    [[nodiscard]] bool template_writes_bos() const { return plain_.traits.writes_bos; }

    base::Result<std::vector<std::int32_t>> encode_chat(const server::RenderedChat& chat) const override {
        return tokenizer_.encode(chat.text, {.add_special = true, .parse_special = true, .plain = chat.plain});
    }

    base::Result<std::vector<std::int32_t>> encode(std::string_view text, bool add_special,
                                                   bool parse_special) const override {
        return tokenizer_.encode(text, {.add_special = add_special, .parse_special = parse_special});
    }

    server::RenderedChat render_chat(const boost::json::object& inputs) const override {
        if (worker_ == nullptr) return {base::Errc::template_failed, "this server renders no chat templates"};
        const auto* tools = inputs.if_contains("tools");
        const bool has_tools = tools != nullptr && tools->is_array() && !tools->get_array().empty();
        const ChatTemplate& chosen = has_tools ? with_tools_ : plain_;
        const auto* messages = inputs.if_contains("messages");
        text::ControlGuard guard{tokenizer_};
        const auto protect = [&guard](boost::json::value value) {
            guard.protect(value);
            return value;
        };
        // What the server itself writes around tools and calls is added behind the guard.
        const boost::json::array guarded_tools =
            has_tools ? protect(*tools).get_array() : boost::json::array{};
        boost::json::array adapted =
            text::adapt_messages(messages != nullptr && messages->is_array() ? messages->get_array()
                                                                             : boost::json::array{},
                                 chosen.traits);
        const std::string messages_json = boost::json::serialize(
            text::spell_out_tools(std::move(protect(std::move(adapted)).get_array()), guarded_tools,
                                  chosen.traits, *chosen.format));
        const std::string tools_json = has_tools ? boost::json::serialize(guarded_tools) : std::string{};
        boost::json::object extra;
        bool add_generation_prompt = true;
        for (const auto& [key, value] : inputs) {
            if (key == "messages" || key == "tools") continue;
            if (key == "add_generation_prompt")
                add_generation_prompt = value.is_bool() && value.get_bool();
            else
                extra.emplace(key, value);
        }
        const std::string extra_json = extra.empty() ? std::string{} : boost::json::serialize(protect(std::move(extra)));

        text::RenderRequest request;
        request.template_source = chosen.source;
        request.messages_json = messages_json;
        request.tools_json = tools_json;
        request.extra_json = extra_json;
        request.bos_token = tokenizer_.bos_text();
        request.eos_token = tokenizer_.eos_text();
        request.add_generation_prompt = add_generation_prompt;
        text::RenderResult result = worker_->render(request);
        if (!result.is_ok()) return {result.error(), std::move(result.message)};
        auto restored = guard.restore(text::without_added_tokens(result.text, tokenizer_));
        if (!restored)
            return {base::Errc::template_failed, "the chat template changed a text that spells a control token"};
        server::RenderedChat chat{{}, std::move(restored->text), std::move(restored->plain)};
        chat.format = chosen.format;
        chat.in_reasoning = reply::opens_reasoning(*chosen.format, chat.text);
        return chat;
    }

    server::BoundReply bind_reply(const base::OutputRules& rules, const grammar::ReplyForm& form) const override {
        // A vocabulary is arranged for masks when the first request needs it.
        std::call_once(grammars_made_, [this] {
            grammars_.emplace(std::make_shared<const grammar::TokenTable>(tokenizer_));
        });
        grammar::Outcome outcome = grammars_->get(rules, form);
        if (auto* refusal = std::get_if<grammar::Refusal>(&outcome)) return std::move(*refusal);
        return std::get<0>(std::move(outcome));
    }

    std::unique_ptr<server::TextStream> start(server::TextStreamOptions options) const override {
        std::span<const std::int32_t> marks;
        if (options.marks_of == plain_.format && options.marks_of != nullptr) marks = plain_.marks;
        if (options.marks_of == with_tools_.format) marks = with_tools_.marks;
        return std::make_unique<Stream>(tokenizer_, std::move(options), marks);
    }

    std::string_view piece(std::int32_t token, bool render_special) const override {
        return tokenizer_.token_piece(token, render_special);
    }
    std::int32_t vocab_size() const override { return tokenizer_.vocab_size(); }
    std::span<const std::int32_t> eog_ids() const override { return tokenizer_.eog_ids(); }

private:
    ChatTemplate load(const text::TemplateChoice& choice, bool has_tools) const {
        ChatTemplate loaded;
        loaded.source = choice.source;
        if (worker_ != nullptr)
            loaded.traits = text::probe_template(*worker_, loaded.source, tokenizer_.bos_text(),
                                                 tokenizer_.eos_text());
        loaded.format = &reply::detect_format(loaded.source);
        if (has_tools && !loaded.traits.shows_tools)
            loaded.format = &text::spelled_format(*loaded.format);
        for (std::int32_t id = 0; id < tokenizer_.vocab_size(); ++id)
            if (tokenizer_.token_type(id) == text::TokenType::control &&
                reply::belongs_to_mark(*loaded.format, tokenizer_.token_piece(id, true)))
                loaded.marks.push_back(id);
        return loaded;
    }

    const text::Tokenizer& tokenizer_;
    text::TemplateWorker* worker_;
    ChatTemplate plain_, with_tools_;
    mutable std::once_flag grammars_made_;
    mutable std::optional<grammar::Cache> grammars_;
};

/// A template of the operator's that is no Jinja2 is a mistake of the configuration; one that refuses a
/// conversation is not.
void check_compiles(const std::string& source, const std::filesystem::path& path, const text::Tokenizer& tokenizer,
                    text::TemplateWorker& worker) {
    const std::string bos{tokenizer.bos_text()}, eos{tokenizer.eos_text()};
    text::RenderRequest request;
    request.template_source = source;
    request.messages_json = R"([{"role":"user","content":"x"}])";
    request.bos_token = bos;
    request.eos_token = eos;
    const text::RenderResult result = worker.render(request);
    // Errors of syntax say their line.
    if (result.status == text::RenderResult::Status::failed && result.message.starts_with("line "))
        throw base::ConfigError{"model.chat_template_file: " + path.string() + ": " + result.message};
}

}  // namespace

std::string read_chat_template(const std::filesystem::path& path) {
    if (path.empty()) return {};
    const auto refuse = [&](const std::string& reason) {
        throw base::ConfigError{"model.chat_template_file: " + path.string() + ": " + reason};
    };
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) refuse("is a folder, want a Jinja2 template");
    std::ifstream in{path, std::ios::binary};
    if (!in) refuse(std::strerror(errno));
    std::string source{std::istreambuf_iterator<char>{in}, {}};
    if (in.bad()) refuse("cannot be read");
    if (source.empty()) refuse("is empty");
    if (source.size() > text::kMaxTemplateBytes)
        refuse("has " + std::to_string(source.size()) + " bytes, want at most " +
               std::to_string(text::kMaxTemplateBytes));
    if (!text::is_valid_utf8(source)) refuse("is not UTF-8");
    return source;
}

std::shared_ptr<const server::TextCodec> make_text_codec(const text::Tokenizer& tokenizer,
                                                         const base::Metadata& metadata,
                                                         const std::filesystem::path& chat_template_file,
                                                         text::TemplateWorker* worker,
                                                         const std::function<void(std::string_view)>& warn) {
    const std::string source = read_chat_template(chat_template_file);
    if (!source.empty() && worker != nullptr) check_compiles(source, chat_template_file, tokenizer, *worker);
    auto codec = std::make_shared<Codec>(tokenizer, metadata, source, worker);
    if (warn && tokenizer.add_bos() && codec->template_writes_bos())
        warn("the chat template writes BOS, and the tokenizer adds it: prompts keep one of them");
    return codec;
}

}  // namespace app
