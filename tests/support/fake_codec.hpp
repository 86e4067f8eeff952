#pragma once

#include "daemon/server/text_codec.hpp"
#include "daemon/text/stop_strings.hpp"
#include "daemon/text/utf8.hpp"

#include "daemon/text/reply/format.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace support {

/// A vocabulary of all bytes, a few control tokens, and words given by the test. Texts are
/// encoded byte by byte; only replies use the words.
class FakeCodec final : public server::TextCodec {
public:
    static constexpr std::int32_t kEog = 256;
    static constexpr std::int32_t kBos = 257;
    static constexpr std::int32_t kFirstWord = 258;

    explicit FakeCodec(std::vector<std::string> words = {}) : words_{std::move(words)} {
        for (std::size_t i = 0; i < bytes_.size(); ++i)
            bytes_[i] = std::string(1, static_cast<char>(i));
    }

    base::Result<std::vector<std::int32_t>> encode(std::string_view text, bool add_special,
                                                   bool) const override {
        std::vector<std::int32_t> ids;
        if (add_special) ids.push_back(kBos);
        for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
        return ids;
    }

    /// "[tool,tool]\n" where there are tools, "role:content\n" for each message, with "{thought}"
    /// and "(call arguments)" behind the content, then "assistant:".
    ///
    /// A message "refuse!" is refused, "hang!" times out, "throw!" throws, and one that begins with
    /// "assistant" and no user before it is refused where `insists_on_user`.
    server::RenderedChat render_chat(const boost::json::object& inputs) const override {
        ++num_renders;
        while (holds_renders) std::this_thread::sleep_for(std::chrono::milliseconds{1});
        std::string out = tool_names(inputs);
        bool has_user = false;
        for (const auto& message : inputs.at("messages").as_array()) {
            const auto& content = message.at("content").as_string();
            if (content == "refuse!")
                return {base::make_error_code(base::Errc::template_failed), "no such talk"};
            if (content == "hang!")
                return {base::make_error_code(base::Errc::template_broken), "worker 17 was killed"};
            if (content == "throw!") throw 17;
            has_user |= message.at("role").as_string() == "user";
            if (insists_on_user && !has_user && message.at("role").as_string() == "assistant")
                return {base::make_error_code(base::Errc::template_failed), "begin with the user"};
            out += message.at("role").as_string();
            out += ':';
            out += content;
            if (const auto* thought = message.as_object().if_contains("reasoning_content"))
                out += '{' + std::string{thought->as_string()} + '}';
            if (const auto* calls = message.as_object().if_contains("tool_calls"))
                for (const auto& call : calls->as_array())
                    out += '(' + std::string{call.at("function").at("name").as_string()} + ' ' +
                           boost::json::serialize(call.at("function").at("arguments")) + ')';
            out += '\n';
        }
        return {{}, out + "assistant:", {}, format, in_reasoning};
    }

    /// Free text for all that leave the model a choice; forms and required calls are refused.
    server::BoundReply bind_reply(const base::OutputRules& rules,
                                  const grammar::ReplyForm& form) const override {
        if (rules.form == base::OutputRules::Form::text &&
            rules.calls != base::OutputRules::Calls::required)
            return std::shared_ptr<const base::TokenRules>{};
        return TextCodec::bind_reply(rules, form);
    }

    /// How replies are written; null: plainly.
    void write_replies_as(std::string_view name) {
        for (const reply::Format& row : reply::formats())
            if (row.name == name) format = &row;
    }

    const reply::Format* format = nullptr;
    bool in_reasoning = false;
    bool insists_on_user = false;
    mutable std::atomic<int> num_renders{0};
    std::atomic<bool> holds_renders{false};

    std::unique_ptr<server::TextStream> start(server::TextStreamOptions options) const override {
        return std::make_unique<Stream>(*this, std::move(options));
    }

    std::string_view piece(std::int32_t token, bool render_special) const override {
        if (token < 0) return {};
        const auto id = static_cast<std::size_t>(token);
        if (id < bytes_.size()) return bytes_[id];
        if (token == kEog) return render_special ? "<eos>" : "";
        if (token == kBos) return render_special ? "<s>" : "";
        const std::size_t word = id - kFirstWord;
        return word < words_.size() ? std::string_view{words_[word]} : std::string_view{};
    }

    std::int32_t vocab_size() const override {
        return kFirstWord + static_cast<std::int32_t>(words_.size());
    }
    std::span<const std::int32_t> eog_ids() const override { return kEogIds; }

private:
    static std::string tool_names(const boost::json::object& inputs) {
        const auto* tools = inputs.if_contains("tools");
        if (tools == nullptr || !tools->is_array()) return {};
        std::string out;
        for (const auto& tool : tools->as_array())
            out += (out.empty() ? "[" : ",") +
                   std::string{tool.at("function").at("name").as_string()};
        return out + "]\n";
    }

    class Stream final : public server::TextStream {
    public:
        Stream(const FakeCodec& codec, server::TextStreamOptions options)
            : codec_{codec}, options_{options}, stops_{options.stop} {}
        server::Decoded push(std::int32_t token) override {
            return pass(utf8_.push(codec_.piece(token, options_.render_special)));
        }
        std::string flush() override {
            std::string out = pass(utf8_.flush()).text;
            return out + stops_.flush();
        }

    private:
        server::Decoded pass(const std::string& text) {
            auto step = stops_.push(text);
            if (step.found && options_.include_stop) step.emit += options_.stop[*step.found];
            return {std::move(step.emit), step.found.has_value()};
        }
        const FakeCodec& codec_;
        server::TextStreamOptions options_;
        text::Utf8Stream utf8_;
        text::StopStrings stops_;
    };

    static constexpr std::array<std::int32_t, 1> kEogIds{kEog};
    std::array<std::string, 256> bytes_;
    std::vector<std::string> words_;
};

}  // namespace support
