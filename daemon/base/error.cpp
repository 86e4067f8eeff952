#include "daemon/base/error.hpp"

namespace base {
namespace {

class Category final : public boost::system::error_category {
public:
    [[nodiscard]] const char* name() const noexcept override { return "assay"; }

    [[nodiscard]] std::string message(int value) const override {
        switch (static_cast<Errc>(value)) {
            case Errc::queue_full: return "the waiting queue is full";
            case Errc::key_in_flight: return "the key has as many requests in flight as it may";
            case Errc::key_tokens: return "the key's tokens of this minute are used up";
            case Errc::kv_exhausted: return "not enough free KV cache blocks";
            case Errc::prompt_too_long: return "the prompt does not fit the context";
            case Errc::cancelled: return "cancelled";
            case Errc::draining: return "the server is draining";
            case Errc::not_ready: return "no passing assay of the current model";
            case Errc::template_failed: return "the chat template refused the conversation";
            case Errc::template_broken: return "the chat template could not be rendered";
            case Errc::device_lost: return "a backend failed";
            case Errc::deadline: return "the deadline of the request has passed";
            case Errc::queue_timeout: return "the request waited too long to be admitted";
        }
        return "unknown error " + std::to_string(value);
    }
};

}  // namespace

const boost::system::error_category& error_category() noexcept {
    static const Category category;
    return category;
}

}  // namespace base
