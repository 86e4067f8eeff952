#include "daemon/server/protocol/generation_params.hpp"

#include <charconv>
#include <limits>
#include <string_view>

namespace server {
namespace json = boost::json;
namespace {

constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxBiases = 10'000;
constexpr float kBanned = -std::numeric_limits<float>::infinity();

struct Target {
    GenerationParams& params;
    std::int32_t vocab_size;
};
using Value = json::value;
using Reader = FieldReader;

ApiError too_many(std::string_view param, std::size_t max) {
    return invalid_request(
        "array_above_max_length", param,
        "Invalid '" + std::string{param} + "': at most " + std::to_string(max) + " entries.");
}

bool read_top_k(const Value& value, Target& t, Reader& r) {
    std::int32_t k = 0;
    if (!r.integer(value, "top_k", -1, std::numeric_limits<std::int32_t>::max(), k)) return false;
    t.params.sampling.top_k = k < 0 ? 0 : k;
    return true;
}

bool read_stop(const Value& value, Target& t, Reader& r) {
    std::string text;
    if (value.is_string()) {
        if (!r.string(value, "stop", text, kMaxStopBytes)) return false;
        if (!text.empty()) t.params.stop.push_back(std::move(text));
        return true;
    }
    if (!value.is_array()) return r.fail(wrong_type("stop", "a string or an array of strings"));
    const json::array& list = value.get_array();
    if (list.size() > kMaxStops) return r.fail(too_many("stop", kMaxStops));
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (!r.string(list[i], indexed("stop", i), text, kMaxStopBytes)) return false;
        if (!text.empty()) t.params.stop.push_back(std::move(text));
    }
    return true;
}

bool read_stop_token_ids(const Value& value, Target& t, Reader& r) {
    const json::array* list = r.array(value, "stop_token_ids");
    if (list == nullptr) return false;
    if (list->size() > kMaxBiases) return r.fail(too_many("stop_token_ids", kMaxBiases));
    for (std::size_t i = 0; i < list->size(); ++i) {
        std::int32_t id = 0;
        if (!r.integer((*list)[i], indexed("stop_token_ids", i), 0, t.vocab_size - 1, id))
            return false;
        t.params.stop_token_ids.push_back(id);
    }
    return true;
}

bool add_bias(std::int64_t id, const Value& bias, Target& t, Reader& r) {
    if (id < 0 || id >= t.vocab_size)
        return r.fail(invalid_value("logit_bias", "Invalid 'logit_bias': token id " +
                                                      std::to_string(id) + " is out of range."));
    float added = 0;
    if (bias.is_bool() && !bias.get_bool())
        added = kBanned;
    else if (!r.decimal(bias, "logit_bias", -100, 100, added))
        return false;
    t.params.sampling.logit_bias.emplace_back(static_cast<std::int32_t>(id), added);
    return true;
}

bool read_logit_bias(const Value& value, Target& t, Reader& r) {
    if (value.is_array()) {  // [[id, bias], …]
        if (value.get_array().size() > kMaxBiases)
            return r.fail(too_many("logit_bias", kMaxBiases));
        for (const Value& pair : value.get_array()) {
            if (!pair.is_array() || pair.get_array().size() != 2 || !pair.get_array()[0].is_int64())
                return r.fail(wrong_type("logit_bias", "pairs of token id and bias"));
            if (!add_bias(pair.get_array()[0].get_int64(), pair.get_array()[1], t, r)) return false;
        }
        return true;
    }
    const json::object* map = r.object(value, "logit_bias");
    if (map == nullptr) return false;
    if (map->size() > kMaxBiases) return r.fail(too_many("logit_bias", kMaxBiases));
    for (const auto& [key, bias] : *map) {
        std::int64_t id = 0;
        const char* end = key.data() + key.size();
        const auto [rest, ec] = std::from_chars(key.data(), end, id);
        if (ec != std::errc{} || rest != end)
            return r.fail(invalid_value("logit_bias",
                                        "Invalid 'logit_bias': keys are token ids in decimal."));
        if (!add_bias(id, bias, t, r)) return false;
    }
    return true;
}

constexpr double kSmall = 1e-6;
constexpr double kLarge = 100;

// clang-format off
constexpr Field<Target> kFields[] = {
    {"temperature",        [](const Value& v, Target& t, Reader& r) { return r.decimal(v, "temperature", 0, 2, t.params.sampling.temperature); }},
    {"top_p",              [](const Value& v, Target& t, Reader& r) { return r.decimal(v, "top_p", 0, 1, t.params.sampling.top_p); }},
    {"top_k",              read_top_k},
    {"min_p",              [](const Value& v, Target& t, Reader& r) { return r.decimal(v, "min_p", 0, 1, t.params.sampling.min_p); }},
    {"repetition_penalty", [](const Value& v, Target& t, Reader& r) { return r.decimal(v, "repetition_penalty", kSmall, kLarge, t.params.sampling.repetition_penalty); }},
    {"repeat_penalty",     [](const Value& v, Target& t, Reader& r) { return r.decimal(v, "repeat_penalty", kSmall, kLarge, t.params.sampling.repetition_penalty); }},
    {"presence_penalty",   [](const Value& v, Target& t, Reader& r) { return r.decimal(v, "presence_penalty", -2, 2, t.params.sampling.presence_penalty); }},
    {"frequency_penalty",  [](const Value& v, Target& t, Reader& r) { return r.decimal(v, "frequency_penalty", -2, 2, t.params.sampling.frequency_penalty); }},
    {"seed",               [](const Value& v, Target& t, Reader& r) { return r.integer(v, "seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), t.params.seed.emplace()); }},
    {"stop",               read_stop},
    {"stop_token_ids",     read_stop_token_ids},
    {"include_stop_str_in_output", [](const Value& v, Target& t, Reader& r) { return r.boolean(v, "include_stop_str_in_output", t.params.include_stop); }},
    {"skip_special_tokens", [](const Value& v, Target& t, Reader& r) { return r.boolean(v, "skip_special_tokens", t.params.skip_special); }},
    {"logit_bias",         read_logit_bias},
    {"ignore_eos",         [](const Value& v, Target& t, Reader& r) { return r.boolean(v, "ignore_eos", t.params.ignore_eos); }},
    {"min_tokens",         [](const Value& v, Target& t, Reader& r) { return r.integer(v, "min_tokens", 0, std::numeric_limits<std::int32_t>::max(), t.params.min_tokens); }},
    // Known elsewhere and harmless here.
    {"typical_p", nullptr}, {"mirostat", nullptr}, {"mirostat_tau", nullptr}, {"mirostat_eta", nullptr},
    {"samplers", nullptr}, {"repeat_last_n", nullptr}, {"cache_salt", nullptr},
};
// clang-format on

}  // namespace

bool check_generation_params(const GenerationParams& params, FieldReader& reader) {
    if (params.max_tokens == 0 || params.min_tokens <= params.max_tokens) return true;
    return reader.fail(invalid_value(
        "min_tokens", "Invalid 'min_tokens': " + std::to_string(params.min_tokens) +
                          " is more than the limit of " + std::to_string(params.max_tokens) +
                          " tokens."));
}

bool read_generation_param(std::string_view name, const Value& value, std::int32_t vocab_size,
                           GenerationParams& params, FieldReader& reader) {
    Target target{params, vocab_size};
    for (const Field<Target>& field : kFields) {
        if (field.name != name) continue;
        if (field.read != nullptr) field.read(value, target, reader);
        return true;
    }
    return name.starts_with("xtc_") || name.starts_with("dry_");
}

}  // namespace server
