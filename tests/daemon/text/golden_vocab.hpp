#pragma once

#include "daemon/base/metadata.hpp"

#include <boost/json.hpp>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace golden {

inline std::string read_file(const std::string& path) {
    std::ifstream in{path, std::ios::binary};
    if (!in) throw std::runtime_error{path + ": cannot be opened"};
    return {std::istreambuf_iterator<char>{in}, {}};
}

inline boost::json::value read_json(const std::string& name) {
    return boost::json::parse(read_file(std::string{ASSAY_TEST_DATA "/text/"} + name));
}

inline std::string to_string(const boost::json::value& value) {
    return boost::json::value_to<std::string>(value);
}

inline std::vector<std::int32_t> to_ids(const boost::json::value& value) {
    return boost::json::value_to<std::vector<std::int32_t>>(value);
}

inline std::string unhex(std::string_view hex) {
    std::string out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        out.push_back(static_cast<char>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16)));
    return out;
}

/// The metadata of a vocab-NAME.json, its left-out tokens filled in as unused ones.
inline base::Metadata metadata_of(const boost::json::value& vocab) {
    base::Metadata metadata;
    for (const auto& [key, value] : vocab.at("metadata").as_object()) {
        if (value.is_string()) metadata.set(key, to_string(value));
        if (value.is_bool()) metadata.set(key, value.as_bool());
        if (value.is_int64()) metadata.set(key, value.as_int64());
    }
    const auto size = boost::json::value_to<std::size_t>(vocab.at("vocab_size"));
    std::vector<std::string> tokens(size);
    std::vector<std::int64_t> types(size, 5);
    std::vector<double> scores(size);
    for (std::size_t i = 0; i < size; ++i) tokens[i] = "left out " + std::to_string(i);
    bool has_scores = false;
    for (const auto& token : vocab.at("tokens").as_array()) {
        const auto id = boost::json::value_to<std::size_t>(token.at(0));
        tokens[id] = to_string(token.at(1));
        types[id] = token.at(2).as_int64();
        has_scores = token.as_array().size() > 3;
        if (has_scores) scores[id] = boost::json::value_to<double>(token.at(3));
    }
    metadata.set("tokenizer.ggml.tokens", std::move(tokens));
    metadata.set("tokenizer.ggml.token_type", std::move(types));
    if (has_scores) metadata.set("tokenizer.ggml.scores", std::move(scores));
    if (vocab.at("merges").is_array())
        metadata.set("tokenizer.ggml.merges",
                     boost::json::value_to<std::vector<std::string>>(vocab.at("merges")));
    return metadata;
}

}  // namespace golden
