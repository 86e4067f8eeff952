#include "write.hpp"

#include "blocks.hpp"
#include "plugins/loader/gguf/builder.hpp"
#include "plugins/loader/gguf/output_file.hpp"
#include "random.hpp"
#include "vocabulary.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <numbers>
#include <optional>
#include <thread>

namespace synth {
namespace {

constexpr std::uint64_t kPieceBytes = 4ull << 20;

struct ValueWriter {
    gguf::HeaderBuilder& header;
    std::string key;

    void operator()(std::int64_t v) const { header.add(key, static_cast<std::uint32_t>(v)); }
    void operator()(double v) const { header.add(key, static_cast<float>(v)); }
    void operator()(bool v) const { header.add(key, v); }
    void operator()(const std::string& v) const { header.add_string(key, v); }
    void operator()(const std::vector<std::int64_t>& v) const {
        const std::vector<std::int32_t> items(v.begin(), v.end());
        header.add_array<std::int32_t>(key, items);
    }
    void operator()(const std::vector<double>& v) const {
        const std::vector<float> items(v.begin(), v.end());
        header.add_array<float>(key, items);
    }
    void operator()(const std::vector<bool>& v) const {
        const auto items = std::make_unique<bool[]>(v.size());
        std::copy(v.begin(), v.end(), items.get());
        header.add_array<bool>(key, std::span<const bool>{items.get(), v.size()});
    }
    void operator()(const std::vector<std::string>& v) const { header.add_strings(key, v); }
};

void add_vocabulary(gguf::HeaderBuilder& header, const Vocabulary& v, const std::string& pre) {
    header.add_string("tokenizer.ggml.model", "gpt2");
    header.add_string("tokenizer.ggml.pre", pre);
    header.add_strings("tokenizer.ggml.tokens", v.tokens);
    header.add_array<std::int32_t>("tokenizer.ggml.token_type", v.types);
    header.add_strings("tokenizer.ggml.merges", v.merges);
    header.add("tokenizer.ggml.bos_token_id", v.bos);
    header.add("tokenizer.ggml.eos_token_id", v.eos);
    header.add("tokenizer.ggml.eot_token_id", v.eot);
    header.add("tokenizer.ggml.add_bos_token", false);
    header.add_string("tokenizer.chat_template", v.chat_template);
}

gguf::HeaderBuilder make_header(const ModelPlan& plan) {
    gguf::HeaderBuilder header;
    header.add_string("general.architecture", plan.arch);
    header.add_string("general.type", "model");
    header.add_string("general.name", plan.name);
    header.add("general.quantization_version", std::uint32_t{2});
    header.add("general.file_type", plan.file_type);
    for (const auto& [key, value] : plan.keys.all())
        std::visit(ValueWriter{header, plan.arch + "." + key}, value);
    add_vocabulary(header, make_vocabulary(static_cast<std::uint32_t>(plan.hparams.vocab_size)),
                   plan.pre);
    return header;
}

/// Divisor of each pair: 1 for short waves, 8 for long ones, smooth between (Llama 3.1).
std::vector<float> rope_factors(const model::RopeParams& rope) {
    constexpr double kFactor = 8, kLow = 1, kHigh = 4, kContext = 8192;
    std::vector<float> out;
    for (std::int64_t i = 0; i < rope.n_rot / 2; ++i) {
        const double wave =
            2 * std::numbers::pi *
            std::pow(rope.theta, 2.0 * static_cast<double>(i) / static_cast<double>(rope.n_rot));
        const double smooth = std::clamp((kContext / wave - kLow) / (kHigh - kLow), 0.0, 1.0);
        out.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / kFactor + smooth)));
    }
    return out;
}

std::vector<float> values_of(const PlannedTensor& t, const model::Hparams& hparams,
                             std::uint64_t seed) {
    if (t.content == Content::rope_factors) return rope_factors(hparams.ropes.front());
    std::vector<float> out(t.bytes / sizeof(float));
    for (std::size_t i = 0; i < out.size(); ++i) {
        const double uniform = static_cast<double>(mix(seed + i) >> 11) * 0x1p-53;
        out[i] = static_cast<float>(t.centre + t.spread * (2.0 * uniform - 1.0));
    }
    return out;
}

/// A stretch of one tensor: small enough to stay in a cache between being made and being written.
struct Piece {
    std::size_t tensor;
    std::uint64_t offset, bytes;  ///< in the tensor
};

std::vector<Piece> cut(const ModelPlan& plan) {
    std::vector<Piece> pieces;
    for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
        const PlannedTensor& tensor = plan.tensors[t];
        std::uint64_t step = tensor.bytes;
        if (tensor.content == Content::blocks)
            step = kPieceBytes / tensor.type->block_bytes * tensor.type->block_bytes;
        for (std::uint64_t at = 0; at < tensor.bytes; at += step)
            pieces.push_back({t, at, std::min(step, tensor.bytes - at)});
    }
    return pieces;
}

class DataWriter {
public:
    DataWriter(const ModelPlan& plan, const gguf::OutputFile& file,
               std::vector<std::uint64_t> offsets, const WriteOptions& options)
        : plan_{plan},
          file_{file},
          offsets_{std::move(offsets)},
          options_{options},
          pieces_{cut(plan)},
          total_{plan.data_bytes()} {
        for (const PlannedTensor& t : plan.tensors)
            makers_.push_back(t.content == Content::blocks
                                  ? std::optional<BlockMaker>{std::in_place, *t.type, t.rms}
                                  : std::nullopt);
    }

    void run(std::uint32_t num_threads) {
        std::vector<std::thread> threads;
        for (std::uint32_t i = 1; i < num_threads; ++i) threads.emplace_back([this] { work(); });
        work();
        for (std::thread& t : threads) t.join();
        if (failure_) std::rethrow_exception(failure_);
    }

private:
    void work() noexcept {
        try {
            std::vector<std::byte> buffer(kPieceBytes);
            for (std::size_t i; !failed_ && (i = next_++) < pieces_.size();)
                write(pieces_[i], i, buffer);
        } catch (...) {
            const std::lock_guard lock{mutex_};
            if (!failure_) failure_ = std::current_exception();
            failed_ = true;
        }
    }

    void write(const Piece& piece, std::size_t index, std::vector<std::byte>& buffer) {
        const PlannedTensor& tensor = plan_.tensors[piece.tensor];
        const std::uint64_t seed = mix(mix(options_.seed) ^ index);
        const std::uint64_t at = offsets_[piece.tensor] + piece.offset;
        if (makers_[piece.tensor]) {
            const std::span<std::byte> out{buffer.data(), piece.bytes};
            makers_[piece.tensor]->fill(out, seed);
            file_.write(at, out.data(), out.size());
        } else {
            const std::vector<float> values = values_of(tensor, plan_.hparams, seed);
            file_.write(at, values.data(), values.size() * sizeof(float));
        }
        if (!options_.on_progress) return;
        const std::lock_guard lock{mutex_};
        options_.on_progress(done_ += piece.bytes, total_);
    }

    const ModelPlan& plan_;
    const gguf::OutputFile& file_;
    std::vector<std::uint64_t> offsets_;  ///< in the file, one a tensor
    const WriteOptions& options_;
    std::vector<Piece> pieces_;
    std::vector<std::optional<BlockMaker>> makers_;
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> failed_{false};
    std::mutex mutex_;  ///< guards what follows
    std::uint64_t done_ = 0, total_;
    std::exception_ptr failure_;
};

}  // namespace

void write_model(const ModelPlan& plan, const std::string& path, const WriteOptions& options) {
    gguf::HeaderBuilder header = make_header(plan);
    std::vector<std::uint64_t> offsets;
    for (const PlannedTensor& t : plan.tensors)
        offsets.push_back(header.add_tensor(t.name, t.ne, *t.type));
    for (std::uint64_t& offset : offsets) offset += header.data_start();
    gguf::OutputFile file{
        path, header.file_bytes(),
        options.sparse ? gguf::OutputFile::Space::sparse : gguf::OutputFile::Space::reserved};
    const std::string bytes = header.bytes();
    file.write(0, bytes.data(), bytes.size());
    if (!options.sparse) {
        const std::uint32_t processors = std::max(1U, std::thread::hardware_concurrency());
        DataWriter{plan, file, std::move(offsets), options}.run(
            options.threads > 0 ? options.threads : processors);
    }
    file.commit();
}

}  // namespace synth
