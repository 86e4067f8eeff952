// synth: writes GGUF models of any supported architecture, size and format with random weights.

#include "plan.hpp"
#include "preset.hpp"
#include "write.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <exception>

namespace {

struct Options {
    std::string out, preset, arch, formats, pre;
    std::vector<std::string> set, with;
    std::int64_t layers = 0, vocab = 0;
    bool tiny = false, list = false, dry_run = false;
    synth::WriteOptions write;
};

void list_presets() {
    for (const synth::Preset& p : synth::presets())
        std::printf(
            "%-18s %-10s %-10s %s%s\n", std::string{p.name}.c_str(), std::string{p.arch}.c_str(),
            std::string{p.mix}.c_str(), std::string{p.about}.c_str(),
            model::find_architecture(p.arch) == nullptr ? " (architecture not supported yet)" : "");
}

synth::ModelPlan plan_of(const Options& o) {
    const synth::Preset* preset = nullptr;
    if (!o.preset.empty() && (preset = synth::find_preset(o.preset)) == nullptr)
        throw std::invalid_argument{"preset \"" + o.preset +
                                    "\" does not exist; --list shows them"};
    if (preset == nullptr && o.arch.empty())
        throw std::invalid_argument{"--preset or --arch is needed"};
    synth::Keys keys;
    std::string pre = "llama-bpe", formats = "q4_k_m";
    std::vector<std::string> optional{"output.weight"};
    if (preset != nullptr) {
        keys.set(preset->keys);
        pre = preset->pre;
        formats = preset->mix;
        optional = synth::split_words(preset->optional);
    }
    if (o.tiny) synth::make_tiny(keys);
    for (const std::string& words : o.set) keys.set(words);
    if (o.layers > 0) synth::set_layers(keys, o.layers);
    if (o.vocab > 0) keys.set("vocab_size", o.vocab);
    optional.insert(optional.end(), o.with.begin(), o.with.end());
    const std::string arch = o.arch.empty() ? std::string{preset->arch} : o.arch;
    return synth::make_plan("synth-" + (o.preset.empty() ? arch : o.preset), arch, std::move(keys),
                            o.pre.empty() ? pre : o.pre, optional,
                            o.formats.empty() ? formats : o.formats);
}

void run(Options& o) {
    if (o.list) return list_presets();
    const synth::ModelPlan plan = plan_of(o);
    std::uint64_t parameters = 0;
    for (const auto& t : plan.tensors)
        parameters += t.bytes / t.type->block_bytes * t.type->block_elements;
    std::printf("%s: %s, %zu tensors, %.3f B parameters, %.2f GB as %s\n", o.out.c_str(),
                plan.arch.c_str(), plan.tensors.size(), static_cast<double>(parameters) / 1e9,
                static_cast<double>(plan.data_bytes()) / 1e9, plan.formats.c_str());
    if (o.dry_run) return;
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [begin] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    double next_line = 5;
    o.write.on_progress = [&](std::uint64_t done, std::uint64_t total) {
        const double s = seconds();
        if (s < next_line) return;
        next_line = s + 5;
        const double rate = static_cast<double>(done) / s;
        std::fprintf(stderr, "%.1f of %.1f GB, %.2f GB/s, %.0f s left\n",
                     static_cast<double>(done) / 1e9, static_cast<double>(total) / 1e9, rate / 1e9,
                     static_cast<double>(total - done) / rate);
    };
    synth::write_model(plan, o.out, o.write);
    std::printf("written in %.2f s%s\n", seconds(), o.write.sparse ? ", holes for data" : "");
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App cli{"synth: writes a GGUF model of a supported architecture with random weights"};
    cli.add_option("-o,--out", o.out, "File to write; must not exist");
    cli.add_option("-p,--preset", o.preset, "A model's shape by name (--list)");
    cli.add_option("--arch", o.arch,
                   "general.architecture; with --set for every key, when no preset fits");
    cli.add_option(
           "--set", o.set,
           "Metadata keys without the architecture's prefix: 'block_count=4 rope.freq_base=1e4'")
        ->allow_extra_args(false);
    cli.add_option("--layers", o.layers, "Trunk layers");
    cli.add_option("--vocab", o.vocab, "Vocabulary size");
    cli.add_option("-f,--formats", o.formats,
                   "A mix (q4_k_m, q5_k_m, mxfp4_moe …) or one format (q8_0, iq4_xs, bf16 …)");
    cli.add_option("--with", o.with,
                   "Optional tensors to add, by pattern: 'blk.*.nextn.embed_tokens.weight'")
        ->allow_extra_args(false);
    cli.add_option("--pre", o.pre, "tokenizer.ggml.pre");
    cli.add_option("--seed", o.write.seed, "The same seed writes the same bytes");
    cli.add_option("--threads", o.write.threads, "Writers; 0 = one a processor");
    cli.add_flag("--tiny", o.tiny, "The same shape, a few hundred kilobytes in all");
    cli.add_flag("--sparse", o.write.sparse, "Real metadata, holes for data: any size on any disk");
    cli.add_flag("--dry-run", o.dry_run, "Print the size and write nothing");
    cli.add_flag("--list", o.list, "Print the presets");
    try {
        cli.parse(argc, argv);
        if (!o.list && !o.dry_run && o.out.empty())
            throw std::invalid_argument{"--out is required"};
        run(o);
    } catch (const CLI::ParseError& e) {
        return cli.exit(e);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "synth: %s\n", e.what());
        return 1;
    }
    return 0;
}
