#pragma once

#include <string>
#include <string_view>

namespace server {

/// `prefix` and 128 random bits from the kernel, in hexadecimal: nobody can guess it.
[[nodiscard]] std::string random_id(std::string_view prefix);

/// 64 random bits, for a seed that the client did not choose.
[[nodiscard]] unsigned long long random_bits();

}  // namespace server
