#include "daemon/assay/context.hpp"

#include <algorithm>
#include <cstdio>

#include "daemon/model/needs.hpp"

namespace assay {
namespace {

/// Ours: about what a model reads when it is used. Long enough for most limits.
constexpr std::string_view kText =
    "The harbour lay quiet in the early morning. A small boat came in with the tide, and two men stood at the rail and looked at "
    "the town. One of them had been here before, many years ago, when the long wall was still new. \"Nothing has changed,\" he said. "
    "\"The houses are the same, the church is the same, and I think that is the same dog.\" The other laughed and threw him the rope. "
    "They tied the boat to an iron ring and carried their boxes up the steps. In the first box were books, in the second were tools, "
    "and in the third, which was the heaviest, were the stones that they had brought up from the bottom of the sea. There were 12 of "
    "them, each as large as a loaf of bread. An old woman opened the door of the inn. She asked for their names, wrote them in a "
    "book, and gave them a key with the number 7. \"Breakfast is at eight,\" she said. \"If you want fish, tell me tonight.\" They thanked "
    "her and went up to a room with one window. From there they could see the whole bay: the lighthouse, the three islands, and far "
    "away a white line where the water broke on the reef. The younger man opened his notebook. He wrote down the date, the wind and "
    "the weather, as he did every day. Then he drew a map of the bay and marked the place where the ship had gone down. It was a "
    "simple question, and nobody had answered it in a hundred years: why did she turn north, when every chart showed the rocks? ";

}  // namespace

Context::Context(const Candidate& c, const Reference& r, const Options& o, Report& rep)
    : candidate{c},
      reference{r},
      options{o},
      report{rep},
      seed{o.seed != 0 ? o.seed : std::random_device{}()},
      rng{seed},
      definition{r.weights, r.device, r.stream, r.lanes},
      weights{c.weights, c.hparams().num_layers} {
    report.seed = seed;
}

void Context::add(Check check) {
    report.checks.push_back(std::move(check));
    if (options.on_check) options.on_check(report.checks.back());
}

void Context::not_run(const std::string& id, Level level, const std::string& why, bool required) {
    Check check;
    check.id = id;
    check.level = level;
    check.required = required;
    check.detail = why;
    add(std::move(check));
}

std::int32_t Context::max_len() const {
    const std::int64_t cached = static_cast<std::int64_t>(candidate.cache.num_blocks()) * candidate.cache.block_size();
    return static_cast<std::int32_t>(std::min<std::int64_t>(candidate.context_length, cached));
}

OpChecker Context::checker(std::function<void(const Finding&)> on_finding) const {
    OpChecker checker{weights, definition, candidate.device, candidate.stream, std::move(on_finding)};
    std::vector<assay_kv_layout> layouts;
    for (std::int64_t l = 0; l < candidate.hparams().num_layers; ++l) layouts.push_back(candidate.cache.layout(l));
    checker.set_layers(model::attention_layers(candidate.hparams()), std::move(layouts));
    checker.set_activity(options.activity);
    return checker;
}

Gathering::Entry& Gathering::entry(const std::string& id, const Subject& subject) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.check.id == id; });
    if (found != entries_.end()) return *found;
    Entry& made = entries_.emplace_back();
    made.check.id = id;
    made.check.level = level_;
    made.check.subject = subject;
    made.check.bound = 1;
    made.check.verdict = Verdict::passed;
    return made;
}

void Gathering::add(const std::string& id, const Finding& finding, const std::string& where) {
    const Subject subject{finding.plugin, finding.tensor, finding.op, finding.layer};
    Entry& e = entry(id, subject);
    e.check.seconds += finding.seconds;
    e.compared += finding.tally.count();
    e.relative_error = std::max(e.relative_error, finding.tally.relative_error());
    if (e.check.verdict == Verdict::failed) return;  // the first is the one that matters
    e.check.figure = std::max(e.check.figure, finding.tally.figure());
    if (finding.tally.passed()) return;
    e.check.verdict = Verdict::failed;
    e.check.figure = finding.tally.figure();
    e.check.subject = subject;
    e.check.detail = (where.empty() ? "" : where + ": ") + finding.tally.what();
}

void Gathering::fail(const std::string& id, const Subject& subject, const std::string& what) {
    Entry& e = entry(id, subject);
    if (e.check.verdict == Verdict::failed) return;
    e.check.verdict = Verdict::failed;
    e.check.figure = 1e308;
    e.check.subject = subject;
    e.check.detail = what;
}

void Gathering::finish(Context& context) {
    for (Entry& e : entries_) {
        if (e.check.verdict == Verdict::passed) {
            char text[80];
            std::snprintf(text, sizeof text, "%lld outputs, relative error %.1e", static_cast<long long>(e.compared), e.relative_error);
            e.check.detail = text;
        }
        context.add(std::move(e.check));
    }
    entries_.clear();
}

std::vector<std::int32_t> probe_tokens(const Candidate& candidate, std::int32_t count) {
    std::vector<std::int32_t> tokens;
    text::EncodeOptions options;
    options.add_special = true;
    if (auto encoded = candidate.tokenizer.encode(kText, options)) tokens = std::move(*encoded);
    const auto vocab = static_cast<std::int32_t>(candidate.hparams().vocab_size);
    std::erase_if(tokens, [&](std::int32_t t) { return t < 0 || t >= vocab; });
    if (tokens.size() < 32)
        for (std::int32_t i = 0; i < 512; ++i) tokens.push_back(static_cast<std::int32_t>((static_cast<std::int64_t>(i) * 7919 + 17) % vocab));
    const std::size_t own = tokens.size();
    while (tokens.size() < static_cast<std::size_t>(count)) tokens.push_back(tokens[tokens.size() % own]);
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
}

}  // namespace assay
