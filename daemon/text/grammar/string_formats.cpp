#include "daemon/text/grammar/string_formats.hpp"

#include <algorithm>

namespace grammar {

namespace {

// RFC 3339 full-date without 29 February, so that no date is one that a year does not have.
#define ASSAY_DATE                                                                         \
    "[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|" \
    "(?:0[13578]|1[02])-31)"
#define ASSAY_TIME                                                 \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?" \
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
// Lengths are not counted: each count would be a state of its own that half of the vocabulary may
// follow.
#define ASSAY_LABEL "[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*"
#define ASSAY_OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define ASSAY_HOST ASSAY_LABEL "(?:\\." ASSAY_LABEL ")*"

constexpr StringFormat kFormats[] = {
    {"date", ASSAY_DATE},
    {"time", ASSAY_TIME},
    {"date-time", ASSAY_DATE "T" ASSAY_TIME},
    // ISO 8601: years, months, days, then hours, minutes, seconds; or weeks.
    {"duration",
     "P(?:[0-9]{1,4}W|(?:[0-9]{1,4}Y(?:[0-9]{1,4}M)?(?:[0-9]{1,4}D)?|[0-9]{1,4}M(?:[0-9]{1,4}D)?|"
     "[0-9]{1,4}D)(?:T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|"
     "[0-9]{1,4}S))?|T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|"
     "[0-9]{1,4}S))"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email", "[A-Za-z0-9_+-]+(?:\\.[A-Za-z0-9_+-]+)*@" ASSAY_LABEL "(?:\\." ASSAY_LABEL ")+"},
    {"hostname", ASSAY_HOST},
    {"ipv4", ASSAY_OCTET "(?:\\." ASSAY_OCTET "){3}"},
    {"ipv6", "(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"},
    {"uri", "https?://" ASSAY_HOST "(?::[1-9][0-9]{0,3})?(?:/[A-Za-z0-9._~!$&'()*+,;=:@/-]*)?"
            "(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"},
};

#undef ASSAY_DATE
#undef ASSAY_TIME
#undef ASSAY_LABEL
#undef ASSAY_OCTET
#undef ASSAY_HOST

}  // namespace

std::span<const StringFormat> string_formats() {
    return kFormats;
}

std::optional<std::string_view> find_format(std::string_view name) {
    const auto* found = std::ranges::find(kFormats, name, &StringFormat::name);
    if (found == std::end(kFormats)) return std::nullopt;
    return found->pattern;
}

}  // namespace grammar
