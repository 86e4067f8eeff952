#include "daemon/text/stop_strings.hpp"

#include <algorithm>
#include <utility>

namespace text {

namespace {

/// Source: Knuth, Morris, Pratt, "Fast Pattern Matching in Strings", 1977.
std::vector<std::size_t> borders_of(std::string_view text) {
    std::vector<std::size_t> border(text.size(), 0);
    for (std::size_t i = 1, k = 0; i < text.size(); ++i) {
        while (k > 0 && text[i] != text[k]) k = border[k - 1];
        if (text[i] == text[k]) ++k;
        border[i] = k;
    }
    return border;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops) {
    for (std::size_t i = 0; i < stops.size(); ++i) {
        if (stops[i].empty()) continue;
        std::vector<std::size_t> border = borders_of(stops[i]);
        stops_.push_back({std::move(stops[i]), std::move(border), 0, i});
    }
}

StopStrings::Step StopStrings::push(std::string_view delta) {
    if (stopped_) return {};
    std::string text = std::exchange(held_, {});
    text.reserve(text.size() + delta.size());
    for (const char c : delta) {
        text.push_back(c);
        const Stop* longest = nullptr;
        for (Stop& stop : stops_) {
            while (stop.matched > 0 && stop.text[stop.matched] != c)
                stop.matched = stop.border[stop.matched - 1];
            if (stop.text[stop.matched] == c) ++stop.matched;
            if (stop.matched == stop.text.size() &&
                (longest == nullptr || stop.text.size() > longest->text.size()))
                longest = &stop;
        }
        if (longest != nullptr) {
            stopped_ = true;
            text.resize(text.size() - longest->text.size());
            return {std::move(text), longest->index};
        }
    }
    std::size_t held = 0;
    for (const Stop& stop : stops_) held = std::max(held, stop.matched);
    held_ = text.substr(text.size() - held);
    text.resize(text.size() - held);
    return {std::move(text), std::nullopt};
}

std::string StopStrings::flush() {
    return std::exchange(held_, {});
}

}  // namespace text
