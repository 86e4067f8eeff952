#include "daemon/base/check.hpp"
#include "daemon/plugin/elf_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

// Any bytes at all: read_image either names the problem or returns names that are printable and
// complete. It never reads outside the bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const plugin::ImageFacts facts = plugin::read_image(std::as_bytes(std::span{data, size}));
    if (facts.problem.empty()) {
        CHECK(!facts.id.empty() && facts.id.size() < 64);
        CHECK(!facts.version.empty() && !facts.kinds.empty());
        CHECK(facts.num_exported == 1);
    }
    return 0;
}
