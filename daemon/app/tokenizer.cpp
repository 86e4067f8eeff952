#include "daemon/app/tokenizer.hpp"

#include <string>

#include "daemon/base/error.hpp"
#include "daemon/text/round_trip.hpp"

namespace app {

std::unique_ptr<text::Tokenizer> open_tokenizer(const model::ModelFile& file, const config::Config& config,
                                                std::int64_t vocab_size) {
    try {
        auto tokenizer = text::make_tokenizer(file.metadata(), {.pre_tokenizer = config.model.pre_tokenizer});
        if (tokenizer->vocab_size() > vocab_size)
            throw base::ModelError{"tokenizer.ggml.tokens: expected at most as many tokens as the model's "
                                   "embedding has rows, " +
                                   std::to_string(vocab_size) + ", found " +
                                   std::to_string(tokenizer->vocab_size()) +
                                   "; tokenizer and weights are of different models"};
        text::check_round_trip(*tokenizer);
        return tokenizer;
    } catch (const base::ModelError& e) {
        throw base::ModelError{file.path() + ": " + e.what()};
    }
}

}  // namespace app
