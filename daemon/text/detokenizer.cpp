#include "daemon/text/detokenizer.hpp"

namespace text {

std::string Detokenizer::push(std::int32_t id, bool render_special) {
    std::string_view piece = tokenizer_->token_piece(id, render_special);
    if (drop_space_ && !piece.empty()) {
        const bool is_mark = tokenizer_->token_type(id) == TokenType::control;
        if (!is_mark) {
            drop_space_ = false;
            if (piece.front() == ' ') piece.remove_prefix(1);
        }
    }
    return stream_.push(piece);
}

}  // namespace text
