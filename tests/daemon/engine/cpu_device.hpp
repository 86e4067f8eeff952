#pragma once

// The cpu device as the daemon sees it, and a sampler over it with sequences made by hand.

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "cxx/plugin.hpp"
#include "daemon/engine/sampler.hpp"
#include "tests/support/lanes.hpp"

namespace engine_test {

inline const assay_device& cpu_table() {
    static const assay_device* const table = [] {
        void* image = ::dlopen(ASSAY_BUILD_DIR "/plugins/device/cpu.so", RTLD_NOW | RTLD_LOCAL);
        if (image == nullptr) throw std::runtime_error{::dlerror()};
        const auto* module = static_cast<const assay_module*>(::dlsym(image, "assay_module_entry"));
        return static_cast<const assay_device*>(module->query(ASSAY_KIND_DEVICE));
    }();
    return *table;
}

inline plugin::Source no_host() { return {"cpu", nullptr, nullptr}; }

/// A step of sequences that are past their last scheduled token, each with rows of logits.
class SamplerWorld {
public:
    SamplerWorld(std::int32_t max_seqs, std::int32_t max_rows, std::int32_t vocab,
                 const assay_device& table = cpu_table())
        : device{no_host(), &table, 0, {}},
          stream{device, lanes.get()},
          sampler{device, stream, max_seqs, max_rows, vocab},
          vocab_{vocab},
          logits_{device.alloc(static_cast<std::uint64_t>(max_rows * vocab) * sizeof(float))} {}

    /// A sequence in the step. `request` gives the prompt; its rows of logits are `rows`, of which
    /// the last is sampled from when `wants_sample`.
    engine::Sequence& add(base::Request request, std::vector<std::int32_t> generated,
                          const std::vector<std::vector<float>>& rows, bool wants_sample = true) {
        engine::Sequence& s = sequences_.emplace_back();
        s.tokens = request.prompt;
        s.tokens.insert(s.tokens.end(), generated.begin(), generated.end());
        s.num_computed = s.num_tokens() - static_cast<std::int32_t>(rows.size());
        s.request = std::move(request);
        pointers_.push_back(&s);
        rows_.push_back({num_rows_, static_cast<std::int32_t>(rows.size()), wants_sample});
        for (const auto& row : rows) {
            std::copy(row.begin(), row.end(), logits_.as<float>() + num_rows_ * vocab_);
            ++num_rows_;
        }
        return s;
    }

    const std::vector<engine::Sampled>& run() {
        const assay_tensor logits = sdk::make_tensor(logits_.data(), ASSAY_F32, num_rows_, vocab_);
        if (!sampler.run(logits, pointers_, rows_, sampled)) throw std::runtime_error{sampler.failure()};
        return sampled;
    }
    [[nodiscard]] float logit(std::int32_t row, std::int32_t token) const {
        return logits_.as<float>()[row * vocab_ + token];
    }
    void clear() {
        sequences_.clear();
        pointers_.clear();
        rows_.clear();
        num_rows_ = 0;
    }
    /// The token of one sequence alone, drawn from one row.
    std::int32_t draw(const base::Request& request, std::vector<std::int32_t> generated,
                      const std::vector<float>& row) {
        clear();
        add(request, std::move(generated), {row});
        return run()[0].token;
    }

    support::TestLanes lanes;
    plugin::Device device;
    plugin::Stream stream;
    engine::Sampler sampler;
    std::vector<engine::Sampled> sampled;

private:
    std::int32_t vocab_;
    plugin::Buffer logits_;
    std::deque<engine::Sequence> sequences_;
    std::vector<engine::Sequence*> pointers_;
    std::vector<engine::Scheduler::Rows> rows_;
    std::int32_t num_rows_ = 0;
};

inline base::Request greedy(std::vector<std::int32_t> prompt = {0}) {
    base::Request r;
    r.prompt = std::move(prompt);
    r.max_tokens = 100;
    r.sampling.temperature = 0.0F;
    return r;
}

/// Natural log-softmax in double.
inline std::vector<double> log_softmax(const std::vector<float>& logits) {
    const double max = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float x : logits) sum += std::exp(x - max);
    std::vector<double> out;
    for (const float x : logits) out.push_back(x - max - std::log(sum));
    return out;
}

}  // namespace engine_test
