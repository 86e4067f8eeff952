#pragma once

#include "daemon/server/text_codec.hpp"
#include "daemon/text/stop_strings.hpp"
#include "daemon/text/utf8.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

    /// "role:content\n" for each message, then "assistant:". A message "refuse!" is refused.
    server::RenderedChat render_chat(const boost::json::object& inputs) const override {
        std::string out;
        for (const auto& message : inputs.at("messages").as_array()) {
            const auto& content = message.at("content").as_string();
            if (content == "refuse!")
                return {base::make_error_code(base::Errc::template_failed), "no such talk"};
            out += message.at("role").as_string();
            out += ':';
            out += content;
            out += '\n';
        }
        return {{}, out + "assistant:"};
    }

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
