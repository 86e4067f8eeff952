#include "daemon/plugin/resolve.hpp"
#include "daemon/plugin/sha256.hpp"

#include <set>
#include <sstream>

namespace plugin {
namespace {

std::string named(const Choice& choice) {
    return choice.id + ' ' + choice.version + (choice.tier.empty() ? "" : " [" + choice.tier + ']');
}

// Fields end with a newline and lists with an empty line, so that no two plans spell alike.
void put(std::string& out, std::string_view field) {
    out += field;
    out += '\n';
}

void put(std::string& out, const Choice& choice) {
    for (const std::string* field : {&choice.id, &choice.version, &choice.build_id, &choice.tier})
        put(out, *field);
}

}  // namespace

std::string Plan::hash() const {
    std::string text;
    put(text, loader);
    put(text, chat_template);
    put(text, device);
    put(text, prefill);
    put(text, decode);
    for (const std::string& layout : kv_layouts) put(text, layout);
    put(text, "");
    for (const Choice& choice : quant) put(text, choice);
    put(text, "");
    for (const auto& [weight_format, id] : format) put(text, weight_format + '=' + id);
    put(text, "");
    for (const auto& [id, values] : options)
        for (const auto& [key, value] : values) put(text, id + '.' + key + '=' + value);
    return sha256_hex(text).substr(0, 16);
}

std::string Plan::to_text() const {
    std::ostringstream out;
    out << "plan " << hash() << '\n';
    if (!loader.id.empty()) out << "  loader             " << named(loader) << '\n';
    out << "  device             " << named(device) << ": " << device_name << '\n';
    if (!prefill.id.empty()) {
        out << "  attention.prefill  " << named(prefill) << '\n';
        out << "  attention.decode   " << named(decode) << '\n';
        out << "  kv cache           ";
        const std::set<std::string> distinct{kv_layouts.begin(), kv_layouts.end()};
        for (const std::string& layout : distinct)
            out << (layout == *distinct.begin() ? "" : ", ") << layout;
        out << "; " << page_tokens << " tokens a page; prefill and decode "
            << (mixed ? "in one call" : "in calls of their own") << '\n';
    }
    for (const Choice& choice : quant) {
        out << "  quant              " << named(choice) << ':';
        for (const auto& [weight_format, id] : format)
            if (id == choice.id) out << ' ' << weight_format;
        out << '\n';
    }
    if (!chat_template.empty()) out << "  chat template      " << chat_template << '\n';
    for (const auto& [id, values] : options)
        for (const auto& [key, value] : values)
            out << "  option             " << id << '.' << key << " = " << value << '\n';
    for (const PassedOver& other : passed_over)
        out << "  passed over        " << other.role << ' ' << other.id << ": " << other.reason
            << '\n';
    return out.str();
}

const std::shared_ptr<Quant>& Resolution::quant_for(const std::string& format) const {
    return quant.at(plan.format.at(format));
}

}  // namespace plugin
