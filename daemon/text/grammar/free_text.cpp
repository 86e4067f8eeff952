#include "daemon/text/grammar/free_text.hpp"

#include <algorithm>
#include <map>

namespace grammar {

FreeText add_free_text(Nfa& nfa, std::span<const std::string> marks) {
    FreeText out;
    for (std::size_t i = 0; i < marks.size(); ++i) out.behind.push_back(nfa.add());
    std::map<std::string, Nfa::Id> states;  // by the longest end of the text that begins a mark
    for (const std::string& mark : marks)
        for (std::size_t n = 0; n < mark.size(); ++n) states.try_emplace(mark.substr(0, n), 0);
    for (auto& [prefix, id] : states) out.inside.push_back(id = nfa.add());
    if (states.empty()) return out;
    out.start = states.at("");
    for (const auto& [prefix, id] : states) {
        unsigned from = 0;
        Nfa::Id to = 0;
        for (unsigned byte = 0; byte <= 256; ++byte) {
            Nfa::Id next = 0;
            if (byte < 256) {
                const std::string text = prefix + static_cast<char>(byte);
                const auto mark = std::ranges::find(marks, text);
                if (mark != marks.end()) {
                    next = out.behind[static_cast<std::size_t>(mark - marks.begin())];
                } else {
                    std::size_t cut = 0;
                    while (!states.contains(text.substr(cut))) ++cut;
                    next = states.at(text.substr(cut));
                }
            }
            if (byte > 0 && (byte == 256 || next != to)) {
                nfa.bytes(id, from, byte - 1, to);
                from = byte;
            }
            to = next;
        }
    }
    return out;
}

}  // namespace grammar
