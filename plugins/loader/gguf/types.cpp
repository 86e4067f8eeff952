#include "types.hpp"

#include <algorithm>
#include <iterator>

namespace gguf {
namespace {

// clang-format off
constexpr TensorType kTypes[] = {
    /*  0 */ {"f32", 1, 4},       {"f16", 1, 2},       {"q4_0", 32, 18},    {"q4_1", 32, 20},
    /*  4 */ {nullptr, 0, 0},     {nullptr, 0, 0},     {"q5_0", 32, 22},    {"q5_1", 32, 24},
    /*  8 */ {"q8_0", 32, 34},    {"q8_1", 32, 36},    {"q2_k", 256, 84},   {"q3_k", 256, 110},
    /* 12 */ {"q4_k", 256, 144},  {"q5_k", 256, 176},  {"q6_k", 256, 210},  {"q8_k", 256, 292},
    /* 16 */ {"iq2_xxs", 256, 66},{"iq2_xs", 256, 74}, {"iq3_xxs", 256, 98},{"iq1_s", 256, 50},
    /* 20 */ {"iq4_nl", 32, 18},  {"iq3_s", 256, 110}, {"iq2_s", 256, 82},  {"iq4_xs", 256, 136},
    /* 24 */ {"i8", 1, 1},        {"i16", 1, 2},       {"i32", 1, 4},       {"i64", 1, 8},
    /* 28 */ {"f64", 1, 8},       {"iq1_m", 256, 56},  {"bf16", 1, 2},      {nullptr, 0, 0},
    /* 32 */ {nullptr, 0, 0},     {nullptr, 0, 0},     {"tq1_0", 256, 54},  {"tq2_0", 256, 66},
    /* 36 */ {nullptr, 0, 0},     {nullptr, 0, 0},     {nullptr, 0, 0},     {"mxfp4", 32, 17},
    /* 40 */ {"nvfp4", 64, 36},   {"q1_0", 128, 18},   {"q2_0", 64, 18},
};
// clang-format on

struct ForeignType {
    std::uint32_t id;
    const char* words;
};

// Removed types, and the ids of a widespread fork that people meet most.
constexpr ForeignType kForeign[] = {
    {4, "Q4_2, removed from the format"},
    {5, "Q4_3, removed from the format"},
    {31, "Q4_0_4_4, removed from the format"},
    {32, "Q4_0_4_8, removed from the format"},
    {33, "Q4_0_8_8, removed from the format"},
    {36, "IQ4_NL_4_4, removed from the format, or I2_S of a fork"},
    {37, "IQ4_NL_4_8, removed from the format"},
    {38, "IQ4_NL_8_8, removed from the format"},
    {137, "IQ2_K of ik_llama.cpp"},
    {138, "IQ3_K of ik_llama.cpp"},
    {139, "IQ4_K of ik_llama.cpp"},
    {140, "IQ5_K of ik_llama.cpp"},
    {141, "IQ6_K of ik_llama.cpp"},
    {144, "IQ4_KS of ik_llama.cpp"},
    {153, "IQ2_KT of ik_llama.cpp"},
    {154, "IQ3_KT of ik_llama.cpp"},
    {155, "IQ4_KT of ik_llama.cpp"},
};

}  // namespace

const TensorType* find_type(std::uint32_t id) noexcept {
    if (id >= sizeof kTypes / sizeof kTypes[0]) return nullptr;
    return kTypes[id].format != nullptr ? &kTypes[id] : nullptr;
}

const TensorType* find_type(std::string_view format) noexcept {
    const auto* const found = std::find_if(
        std::begin(kTypes), std::end(kTypes),
        [format](const TensorType& type) { return type.format != nullptr && format == type.format; });
    return found != std::end(kTypes) ? found : nullptr;
}

std::uint32_t type_id(const TensorType& type) noexcept {
    return static_cast<std::uint32_t>(&type - kTypes);
}

std::string describe_unknown_type(std::uint32_t id) {
    std::string text = "type id " + std::to_string(id);
    for (const ForeignType& foreign : kForeign)
        if (foreign.id == id) return text + " (" + foreign.words + ")";
    if ((id >= 97 && id <= 99) || (id >= 133 && id <= 158) || (id >= 202 && id <= 399))
        return text + " (a type of ik_llama.cpp)";
    return text;
}

}  // namespace gguf
