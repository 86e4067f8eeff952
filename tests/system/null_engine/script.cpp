#include "tests/system/null_engine/script.hpp"

#include "tests/support/fake_codec.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value_to.hpp>

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace null_engine {
namespace json = boost::json;

Script::Script(const std::filesystem::path& path) try {
    std::ifstream in{path};
    if (!in) throw std::runtime_error{"cannot be read"};
    const std::string text{std::istreambuf_iterator<char>{in}, {}};
    const json::value file = json::parse(text);
    format_ = json::value_to<std::string>(file.at("format"));
    for (const json::value& item : file.at("replies").as_array()) {
        Reply reply{json::value_to<std::string>(item.at("when")), {}};
        for (const json::value& piece : item.at("pieces").as_array()) {
            reply.tokens.push_back(support::FakeCodec::kFirstWord +
                                   static_cast<std::int32_t>(words_.size()));
            words_.push_back(json::value_to<std::string>(piece));
        }
        replies_.push_back(std::move(reply));
    }
} catch (const std::exception& error) {
    throw std::runtime_error{path.string() + ": " + error.what()};
}

const std::vector<std::int32_t>* Script::reply_to(std::span<const std::int32_t> prompt) const {
    if (replies_.empty()) return nullptr;
    std::string text;
    for (const std::int32_t token : prompt)
        if (token < 256) text += static_cast<char>(token);
    for (const Reply& reply : replies_)
        if (text.find(reply.when) != std::string::npos) return &reply.tokens;
    return nullptr;
}

}  // namespace null_engine
