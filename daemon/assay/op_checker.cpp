#include "daemon/assay/op_checker.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "daemon/assay/device_ops.hpp"
#include "daemon/assay/run.hpp"

namespace assay {

OpChecker::OpChecker(const WeightIndex& weights, const Definition& definition, const plugin::Device& device,
                     const plugin::Stream& stream, std::function<void(const Finding&)> on_finding)
    : weights_{weights},
      definition_{definition},
      device_{device},
      stream_{stream},
      on_finding_{std::move(on_finding)},
      shim_{DeviceOps::table(device.ops())} {}

const assay_ops& OpChecker::ops(const Site& site, void** self) {
    site_ = site;
    announce(site, device_.id());
    *self = this;
    return shim_;
}

void OpChecker::announce(const Site& site, const std::string& plugin) const {
    if (activity_ == nullptr) return;
    activity_->begin((site.layer >= 0 ? "layer " + std::to_string(site.layer) + ", " : std::string{}) + site.op + ", plugin " + plugin);
}

HostTensor OpChecker::take(const assay_tensor& tensor) const {
    HostTensor before = read(tensor);
    HostTensor{before}.poison(device_, stream_);
    return before;
}

std::vector<std::int64_t> OpChecker::pick(std::int64_t count, std::int64_t max) const {
    std::vector<std::int64_t> out;
    if (count <= max) {
        for (std::int64_t i = 0; i < count; ++i) out.push_back(i);
        return out;
    }
    out = {0, count - 1};
    for (const std::int64_t row : sampling_.rows)
        if (row >= 0 && row < count) out.push_back(row);
    const std::int64_t spread = std::max<std::int64_t>(1, max - static_cast<std::int64_t>(out.size()));
    for (std::int64_t i = 1; i <= spread; ++i) out.push_back(i * count / (spread + 1));
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

void OpChecker::report(const Site& site, const std::string& plugin, const std::string& tensor, Tally tally,
                       Clock::time_point begin) const {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    on_finding_({site.op, plugin, tensor, site.layer, std::move(tally), seconds});
}

void OpChecker::check_written(const HostTensor& before, const HostTensor& after, Tally& tally) {
    std::int64_t index = 0;
    const std::int64_t width = after.shape().rank > 0 ? after.size(after.shape().rank - 1) : 1;
    const auto place = [&] {
        return "row " + std::to_string(index / width) + ", element " + std::to_string(index % width);
    };
    after.for_each([&](std::int64_t offset) {
        if (after.bits(offset) == kSentinel)
            tally.fail(place() + " was not written");
        else if (after.shape().dtype == ASSAY_F32 && std::isnan(std::bit_cast<float>(after.bits(offset))))
            tally.fail(place() + " is NaN");
        ++index;
    });
    if (!after.equals_outside(before)) tally.fail("elements between the rows of the output were overwritten");
}

}  // namespace assay
