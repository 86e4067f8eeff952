// Any text at all as a configuration: either a snapshot, whose description reads back as the same
// snapshot, or mistakes, each with words. The same text as a file of API keys: keys, or mistakes.

#include "daemon/base/check.hpp"
#include "daemon/base/error.hpp"
#include "daemon/config/config.hpp"
#include "daemon/config/environment.hpp"
#include "daemon/config/keys_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace {

const config::Environment& environment() {
    static const config::Environment kEnvironment{
        {{"ASSAY_KV_BLOCK_SIZE", "64"}}, "/opt/assay/bin", "/work"};
    return kEnvironment;
}

/// Without the comments, which tell where a value came from.
std::string values(const std::string& lines) {
    std::string out;
    for (std::size_t at = 0; at < lines.size();) {
        const std::size_t end = std::min(lines.find('\n', at), lines.size());
        const std::string line = lines.substr(at, end - at);
        out += line.substr(0, line.rfind("  # ")) + '\n';
        at = end + 1;
    }
    return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    try {
        for (const config::ApiKeyEntry& key : config::parse_api_keys(text, "/etc/assay/keys.toml"))
            CHECK(!key.label.empty() && key.secret.empty() != key.sha256.empty() && key.max_in_flight >= 0 &&
                  key.tokens_per_minute >= 0);
    } catch (const base::StartError& e) {
        CHECK(e.code() == base::ExitCode::config && !std::string_view{e.what()}.empty());
    }
    std::string described;
    try {
        described = config::describe(config::parse(text, "/etc/assay/fuzz.toml", environment()));
    } catch (const base::StartError& e) {
        CHECK(e.code() == base::ExitCode::config && !std::string_view{e.what()}.empty());
        return 0;
    }
    // What was accepted is accepted again.
    const std::string again = config::describe(
        config::parse(described, "/etc/assay/fuzz.toml", {{}, "/opt/assay/bin", "/work"}));
    CHECK(values(again) == values(described));
    return 0;
}
