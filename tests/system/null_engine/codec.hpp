#pragma once

#include "daemon/base/request.hpp"
#include "daemon/server/text_codec.hpp"
#include "tests/support/fake_codec.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace null_engine {

/// A token that says when it was made: its text is the steady clock in microseconds modulo 10^9,
/// nine digits and a full stop. tools/load --stamps reads it back.
inline constexpr std::int32_t kFirstStamp = 1 << 20;
inline constexpr std::int32_t kNumStamps = 1'000'000'000;

inline std::int32_t stamp_token(base::Clock::time_point at) {
    const auto us =
        std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch()).count();
    return kFirstStamp + static_cast<std::int32_t>(us % kNumStamps);
}

/// The codec of the tests, and time stamps.
class Codec final : public server::TextCodec {
public:
    static constexpr std::int32_t kEog = support::FakeCodec::kEog;

    /// @param words  tokens FakeCodec::kFirstWord and on
    /// @param reply_format  how replies are written: a row of reply::formats(), or ""
    Codec(std::vector<std::string> words, std::string_view reply_format) : fake_{std::move(words)} {
        fake_.write_replies_as(reply_format);
    }

    base::Result<std::vector<std::int32_t>> encode(std::string_view text, bool add_special,
                                                   bool parse_special) const override {
        return fake_.encode(text, add_special, parse_special);
    }
    server::RenderedChat render_chat(const boost::json::object& inputs) const override {
        return fake_.render_chat(inputs);
    }
    server::BoundReply bind_reply(const base::OutputRules& rules,
                                  const grammar::ReplyForm& form) const override {
        return fake_.bind_reply(rules, form);
    }
    std::unique_ptr<server::TextStream> start(server::TextStreamOptions options) const override {
        return std::make_unique<Stream>(fake_.start(std::move(options)));
    }
    std::string_view piece(std::int32_t token, bool render_special) const override {
        return token >= kFirstStamp ? "000000000." : fake_.piece(token, render_special);
    }
    std::int32_t vocab_size() const override { return kFirstStamp + kNumStamps; }
    std::span<const std::int32_t> eog_ids() const override { return fake_.eog_ids(); }

private:
    class Stream final : public server::TextStream {
    public:
        explicit Stream(std::unique_ptr<server::TextStream> words) : words_{std::move(words)} {}
        server::Decoded push(std::int32_t token) override {
            if (token < kFirstStamp) return words_->push(token);
            char digits[16];
            const int length = std::snprintf(digits, sizeof digits, "%09d.", token - kFirstStamp);
            return {.text = {digits, static_cast<std::size_t>(length)}};
        }
        std::string flush() override { return words_->flush(); }

    private:
        std::unique_ptr<server::TextStream> words_;
    };

    support::FakeCodec fake_;
};

}  // namespace null_engine
