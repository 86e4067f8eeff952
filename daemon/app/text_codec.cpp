#include "daemon/app/text_codec.hpp"

#include <boost/json.hpp>
#include <fstream>
#include <utility>

#include "daemon/base/error.hpp"
#include "daemon/text/chat_template.hpp"
#include "daemon/text/detokenizer.hpp"
#include "daemon/text/stop_strings.hpp"

namespace app {
namespace {

/// What chats of a model without a template are rendered with (ChatML).
constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

std::string read_file(const std::filesystem::path& path) {
    std::ifstream in{path, std::ios::binary};
    if (!in) throw base::ConfigError{"model.chat_template_file: " + path.string() + " cannot be read"};
    return {std::istreambuf_iterator<char>{in}, {}};
}

class Stream final : public server::TextStream {
public:
    Stream(const text::Tokenizer& tokenizer, server::TextStreamOptions options)
        : detokenizer_{tokenizer, {.render_special = options.render_special}},
          stops_{options.stop},
          stop_texts_{std::move(options.stop)},
          include_stop_{options.include_stop} {}

    server::Decoded push(std::int32_t token) override { return take(detokenizer_.push(token)); }

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
    text::StopStrings stops_;
    std::vector<std::string> stop_texts_;
    bool include_stop_;
};

class Codec final : public server::TextCodec {
public:
    Codec(const text::Tokenizer& tokenizer, std::string default_template, std::string tool_template,
          text::TemplateWorker* worker)
        : tokenizer_{tokenizer},
          default_template_{std::move(default_template)},
          tool_template_{std::move(tool_template)},
          worker_{worker} {}

    base::Result<std::vector<std::int32_t>> encode(std::string_view text, bool add_special,
                                                   bool parse_special) const override {
        return tokenizer_.encode(text, {.add_special = add_special, .parse_special = parse_special});
    }

    server::RenderedChat render_chat(const boost::json::object& inputs) const override {
        if (worker_ == nullptr) return {base::Errc::template_failed, "this server renders no chat templates"};
        std::string messages, tools;
        boost::json::object extra;
        bool add_generation_prompt = true;
        for (const auto& [key, value] : inputs) {
            if (key == "messages") messages = boost::json::serialize(value);
            else if (key == "tools") tools = value.is_null() ? std::string{} : boost::json::serialize(value);
            else if (key == "add_generation_prompt") add_generation_prompt = value.is_bool() && value.get_bool();
            else extra.emplace(key, value);
        }
        const std::string extra_json = extra.empty() ? std::string{} : boost::json::serialize(extra);
        text::RenderRequest request;
        request.template_source = !tools.empty() && !tool_template_.empty() ? tool_template_ : default_template_;
        request.messages_json = messages;
        request.tools_json = tools;
        request.extra_json = extra_json;
        request.bos_token = tokenizer_.bos_text();
        request.eos_token = tokenizer_.eos_text();
        request.add_generation_prompt = add_generation_prompt;
        text::RenderResult result = worker_->render(request);
        if (!result.is_ok()) return {result.error(), std::move(result.message)};
        // Exactly one BOS, whether or not the template writes it: encode() adds its own.
        const std::string_view bos = tokenizer_.bos_text();
        if (tokenizer_.add_bos() && !bos.empty() && result.text.starts_with(bos)) result.text.erase(0, bos.size());
        const std::string_view eos = tokenizer_.eos_text();
        if (tokenizer_.add_eos() && !eos.empty() && result.text.ends_with(eos))
            result.text.erase(result.text.size() - eos.size());
        return {{}, std::move(result.text)};
    }

    std::unique_ptr<server::TextStream> start(server::TextStreamOptions options) const override {
        return std::make_unique<Stream>(tokenizer_, std::move(options));
    }

    std::string_view piece(std::int32_t token, bool render_special) const override {
        return tokenizer_.token_piece(token, render_special);
    }
    std::int32_t vocab_size() const override { return tokenizer_.vocab_size(); }
    std::span<const std::int32_t> eog_ids() const override { return tokenizer_.eog_ids(); }

private:
    const text::Tokenizer& tokenizer_;
    std::string default_template_, tool_template_;
    text::TemplateWorker* worker_;
};

}  // namespace

std::shared_ptr<const server::TextCodec> make_text_codec(const text::Tokenizer& tokenizer,
                                                         const base::Metadata& metadata,
                                                         const std::filesystem::path& chat_template_file,
                                                         text::TemplateWorker* worker) {
    std::string source{kChatMl}, tool_source;
    if (!chat_template_file.empty()) {
        source = read_file(chat_template_file);
    } else {
        if (const auto* found = metadata.find_string("tokenizer.chat_template")) source = *found;
        if (const auto* found = metadata.find_string("tokenizer.chat_template.tool_use")) tool_source = *found;
    }
    return std::make_shared<Codec>(tokenizer, std::move(source), std::move(tool_source), worker);
}

}  // namespace app
