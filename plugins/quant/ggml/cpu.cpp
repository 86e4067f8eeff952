#include "plugins/quant/ggml/cpu.hpp"

#include "cxx/plugin.hpp"

namespace ggml {
namespace {

#if defined(__x86_64__)
struct Feature {
    const char* name;
    bool is_present;
};

std::string list_missing(std::initializer_list<Feature> needed) {
    std::string list;
    for (const Feature& f : needed)
        if (!f.is_present) list += (list.empty() ? "" : ", ") + std::string{f.name};
    return list;
}
#endif

}  // namespace

std::string missing_features(std::string_view tier) {
    if (tier == "reference") return {};
#if defined(__x86_64__)
    // libgcc's answers take the operating system's state saving into account. Processors with AVX2
    // and without F16C do not exist; it has no name here before g++ 11's x86-64-v3.
    __builtin_cpu_init();
    const Feature avx2{"avx2", __builtin_cpu_supports("avx2") != 0};
    const Feature fma{"fma", __builtin_cpu_supports("fma") != 0};
    const Feature f{"avx512f", __builtin_cpu_supports("avx512f") != 0};
    const Feature bw{"avx512bw", __builtin_cpu_supports("avx512bw") != 0};
    const Feature dq{"avx512dq", __builtin_cpu_supports("avx512dq") != 0};
    const Feature vl{"avx512vl", __builtin_cpu_supports("avx512vl") != 0};
    const Feature vnni{"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0};
    if (tier == "avx2") return list_missing({avx2, fma});
    if (tier == "avx512") return list_missing({avx2, fma, f, bw, dq, vl});
    if (tier == "avx512-vnni") return list_missing({avx2, fma, f, bw, dq, vl, vnni});
    return "a tier of that name";
#else
    return "an x86-64 processor";
#endif
}

const Tier* choose_tier(std::string_view name) {
    if (name == "auto") {
        for (std::string_view tier : kTierNames)
            if (missing_features(tier).empty()) return choose_tier(tier);
    }
    std::string known = "auto";
    bool is_known = false;
    for (std::string_view tier : kTierNames) {
        is_known = is_known || tier == name;
        known += ", " + std::string{tier};
    }
    if (!is_known)
        throw sdk::Error{ASSAY_UNSUPPORTED,
                         "option tier: got \"" + std::string{name} + "\", want one of " + known};
    if (const std::string missing = missing_features(name); !missing.empty())
        throw sdk::Error{ASSAY_UNSUPPORTED, "option tier: \"" + std::string{name} +
                                                "\" needs what this processor lacks: " + missing};
#if defined(__x86_64__)
    if (name == "avx2") return tier_avx2();
    if (name == "avx512") return tier_avx512();
    if (name == "avx512-vnni") return tier_avx512_vnni();
#endif
    return tier_reference();
}

}  // namespace ggml
