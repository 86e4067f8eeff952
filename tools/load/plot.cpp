#include "figures.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace load {
namespace {

constexpr double kWidth = 320, kHeight = 200, kLeft = 56, kTop = 48, kGap = 80;
using Points = std::vector<std::pair<double, double>>;

std::string fixed(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    return text;
}

std::string short_number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", value);
    return text;
}

std::string label(double x, double y, const std::string& text, const char* anchor = "middle") {
    return "<text x='" + fixed(x) + "' y='" + fixed(y) + "' text-anchor='" + anchor + "'>" + text +
           "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2) {
    return "<line x1='" + fixed(x1) + "' y1='" + fixed(y1) + "' x2='" + fixed(x2) + "' y2='" +
           fixed(y2) + "' class='grid'/>\n";
}

std::string polyline(const Points& points) {
    std::string out = "<polyline points='";
    for (const auto& [x, y] : points) out += fixed(x) + "," + fixed(y) + " ";
    return out + "'/>\n";
}

std::string frame(double left, const std::string& title) {
    return "<rect x='" + fixed(left) + "' y='" + fixed(kTop) + "' width='" + fixed(kWidth) +
           "' height='" + fixed(kHeight) + "'/>\n" + label(left + kWidth / 2, kTop - 8, title);
}

/// Share of all below a time; the time axis is logarithmic, decades marked.
std::string distribution(double left, const std::string& title, const Histogram& times) {
    std::string out = frame(left, title + ", ms (n = " + std::to_string(times.count()) + ")");
    if (times.count() == 0) return out;
    const double low = std::floor(std::log10(std::max(times.percentile_ms(0), 1e-3)));
    const double high = std::max(low + 1, std::ceil(std::log10(std::max(times.max_ms(), 1e-3))));
    const auto x = [&](double ms) {
        return left + kWidth * (std::log10(std::max(ms, 1e-3)) - low) / (high - low);
    };
    const auto y = [](double share) { return kTop + kHeight * (1 - share); };
    for (double decade = low; decade <= high; ++decade) {
        const double at = x(std::pow(10, decade));
        out += line(at, kTop, at, kTop + kHeight) +
               label(at, kTop + kHeight + 16, short_number(std::pow(10, decade)));
    }
    for (const double share : {0.5, 0.9, 0.99})
        out += line(left, y(share), left + kWidth, y(share)) +
               label(left - 4, y(share) + 4, "p" + short_number(share * 100), "end");
    Points points;
    for (int i = 0; i <= 200; ++i) {
        const double share = std::min(i / 200.0, 0.9999);
        points.emplace_back(x(times.percentile_ms(share)), y(share));
    }
    return out + polyline(points);
}

std::string throughput(double left, const std::vector<std::uint64_t>& by_second) {
    std::string out = frame(left, "tokens/s over time, s");
    if (by_second.empty()) return out;
    const double most =
        std::max(1.0, static_cast<double>(*std::max_element(by_second.begin(), by_second.end())));
    const auto x = [&](std::size_t second) {
        return left + kWidth * static_cast<double>(second) /
                          static_cast<double>(std::max<std::size_t>(1, by_second.size() - 1));
    };
    Points points;
    for (std::size_t i = 0; i < by_second.size(); ++i)
        points.emplace_back(x(i), kTop + kHeight * (1 - static_cast<double>(by_second[i]) / most));
    out += label(left - 4, kTop + 4, short_number(most), "end") +
           label(left - 4, kTop + kHeight + 4, "0", "end");
    out += label(left, kTop + kHeight + 16, "0") +
           label(left + kWidth, kTop + kHeight + 16, std::to_string(by_second.size() - 1));
    return out + polyline(points);
}

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '<')
            out += "&lt;";
        else if (c == '&')
            out += "&amp;";
        else
            out += c;
    }
    return out;
}

}  // namespace

std::string to_svg(const Figures& figures, const std::string& title) {
    const double width = 3 * kWidth + 3 * kGap;
    std::string out =
        "<svg xmlns='http://www.w3.org/2000/svg' width='" + fixed(width) + "' height='" +
        fixed(kTop + kHeight + 40) +
        "' font-family='sans-serif' font-size='11'>\n<style>rect{fill:none;stroke:#555}"
        ".grid{stroke:#ddd}polyline{fill:none;stroke:#0060a0;stroke-width:1.5}</style>\n";
    out += label(kLeft, 18, escaped(title), "start");
    out += distribution(kLeft, "TTFT", figures.ttft);
    out += distribution(kLeft + kWidth + kGap, "ITL", figures.itl);
    out += throughput(kLeft + 2 * (kWidth + kGap), figures.tokens_by_second);
    return out + "</svg>\n";
}

}  // namespace load
