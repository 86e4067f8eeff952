#pragma once

// What the levels of one run share. Private to daemon/assay.

#include <random>

#include "daemon/assay/definition.hpp"
#include "daemon/assay/op_checker.hpp"
#include "daemon/assay/run.hpp"

namespace assay {

struct Context {
    Context(const Candidate& c, const Reference& r, const Options& o, Report& rep);

    const Candidate& candidate;
    const Reference& reference;
    const Options& options;
    Report& report;
    std::uint64_t seed;
    std::mt19937_64 rng;
    Definition definition;
    WeightIndex weights;

    /// Adds a check and tells whoever listens.
    void add(Check check);
    void not_run(const std::string& id, Level level, const std::string& why, bool required = true);
    void begin(const std::string& what) const {
        if (options.activity != nullptr) options.activity->begin(what);
    }
    [[nodiscard]] bool cancelled() const { return options.is_cancelled && options.is_cancelled(); }
    /// Tokens that one sequence may have: the context, as far as the cache holds it.
    [[nodiscard]] std::int32_t max_len() const;
    /// A checker of the candidate's calls.
    [[nodiscard]] OpChecker checker(std::function<void(const Finding&)> on_finding) const;
};

/// Collects findings into one check per name, with the worst of them.
class Gathering {
public:
    explicit Gathering(Level level) : level_{level} {}
    void add(const std::string& id, const Finding& finding, const std::string& where = {});
    /// An error status or an exception in place of a result.
    void fail(const std::string& id, const Subject& subject, const std::string& what);
    /// Adds the checks, in the order in which they first appeared.
    void finish(Context& context);

private:
    struct Entry {
        Check check;
        std::int64_t compared = 0;
        double relative_error = 0;
    };
    Entry& entry(const std::string& id, const Subject& subject);

    Level level_;
    std::vector<Entry> entries_;
};

// One file each.
void run_products(Context& context);   // replay_products.cpp
void run_attention(Context& context);  // replay_attention.cpp
void run_device(Context& context);     // replay_device.cpp
void run_model(Context& context);      // model_level.cpp
void run_coherence(Context& context);  // coherence.cpp

}  // namespace assay
