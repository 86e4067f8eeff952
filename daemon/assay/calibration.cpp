#include "daemon/assay/calibration.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "cxx/plugin.hpp"
#include "daemon/assay/logits.hpp"
#include "daemon/assay/run.hpp"
#include "daemon/base/error.hpp"
#include "daemon/plugin/sha256.hpp"

namespace assay {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{4} << 20U;
constexpr std::int32_t kTextTokens = 256, kFingerprintRows = 16;
constexpr std::int64_t kFingerprintIds = 256;

std::string hex(std::uint64_t value) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
    return text;
}

std::uint64_t mix(std::uint64_t state, std::uint64_t word) {
    const unsigned __int128 product = static_cast<unsigned __int128>(state ^ word) * 0xd6e8feb86659fd93ULL;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U) ^ word;
}

/// A tensor's chunks, hashed on all lanes, and the hash of their hashes.
std::string hash_tensor(const model::ModelFile& file, const model::FileTensor& tensor, const assay_lanes* lanes) {
    const std::size_t chunks = (tensor.bytes + kChunkBytes - 1) / kChunkBytes;
    std::vector<std::uint64_t> hashes(chunks);
    const auto* mapped = static_cast<const char*>(file.map(tensor));
    std::exception_ptr failure;
    const auto one = [&](std::uint32_t i, std::uint32_t) {
        const std::uint64_t from = i * std::uint64_t{kChunkBytes};
        const std::size_t bytes = std::min<std::size_t>(kChunkBytes, tensor.bytes - from);
        ContentHash hash;
        if (mapped != nullptr) {
            hash.update(mapped + from, bytes);
        } else {
            std::vector<char> buffer(bytes);
            try {
                file.read(tensor, from, bytes, buffer.data());
            } catch (...) {
                return;  // the zero that stays differs from every record
            }
            hash.update(buffer.data(), bytes);
        }
        hashes[i] = hash.value();
    };
    sdk::parallel_for(lanes, static_cast<std::int64_t>(chunks), one);
    ContentHash all;
    all.update(hashes.data(), hashes.size() * sizeof(std::uint64_t));
    return hex(all.value());
}

template <class T>
std::vector<T> numbers(const boost::json::value& value) {
    return boost::json::value_to<std::vector<T>>(value);
}

}  // namespace

void ContentHash::update(const void* data, std::size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    length_ += bytes;
    while (bytes >= 32) {
        std::uint64_t words[4];
        std::memcpy(words, p, 32);
        for (int i = 0; i < 4; ++i) state_[i] = mix(state_[i], words[i]);
        p += 32;
        bytes -= 32;
    }
    if (bytes == 0) return;
    std::uint64_t words[4] = {};
    std::memcpy(words, p, bytes);
    for (int i = 0; i < 4; ++i) state_[i] = mix(state_[i], words[i] + bytes);
}

std::uint64_t ContentHash::value() const {
    std::uint64_t out = length_;
    for (const std::uint64_t state : state_) out = mix(out, state);
    return mix(out, length_);
}

ModelHashes hash_model(const model::ModelFile& file, const assay_lanes* lanes) {
    ModelHashes out;
    plugin::Sha256 sum;
    for (const auto& [key, value] : file.metadata().all()) {
        sum.update(key);
        sum.update("=");
        std::visit(
            [&](const auto& v) {
                using T = std::decay_t<decltype(v)>;
                if constexpr (std::is_same_v<T, std::string>) {
                    sum.update(v);
                } else if constexpr (requires { v.begin(); }) {
                    for (const auto& item : v) {
                        if constexpr (std::is_same_v<std::decay_t<decltype(item)>, std::string>) {
                            sum.update(item);
                            sum.update(std::string_view{"\0", 1});
                        } else {
                            const auto copy = static_cast<typename T::value_type>(item);
                            sum.update(std::as_bytes(std::span{&copy, 1}));
                        }
                    }
                } else {
                    sum.update(std::as_bytes(std::span{&v, 1}));
                }
            },
            value);
        sum.update("\n");
    }
    for (const model::FileTensor& tensor : file.tensors()) {
        const std::string hash = hash_tensor(file, tensor, lanes);
        std::string line = tensor.name + ' ' + tensor.format;
        for (const std::int64_t dim : tensor.shape) line += ' ' + std::to_string(dim);
        sum.update(line + ' ' + hash + '\n');
        out.tensors.emplace(tensor.name, hash);
    }
    out.model = sum.hex();
    return out;
}

std::string Calibration::to_json() const {
    boost::json::object hashes;
    for (const auto& [name, hash] : tensors) hashes[name] = hash;
    const boost::json::object out{{"object", "assay.calibration"},
                                  {"version", 1},
                                  {"model_hash", model_hash},
                                  {"made_with", made_with},
                                  {"made_at", made_at},
                                  {"note", note},
                                  {"logprob", logprob},
                                  {"entropy", entropy},
                                  {"tokens", boost::json::value_from(tokens)},
                                  {"rows", boost::json::value_from(rows)},
                                  {"ids", boost::json::value_from(ids)},
                                  {"logits", boost::json::value_from(logits)},
                                  {"tensors", std::move(hashes)}};
    return boost::json::serialize(out) + '\n';
}

Calibration Calibration::from_json(std::string_view text, const std::string& file) {
    const auto wrong = [&](const std::string& what) { return base::ConfigError{"calibration " + file + ": " + what}; };
    try {
        const boost::json::object o = boost::json::parse(text).as_object();
        if (boost::json::value_to<std::string>(o.at("object")) != "assay.calibration")
            throw wrong("expected an object \"assay.calibration\", found \"" + boost::json::value_to<std::string>(o.at("object")) + '"');
        if (boost::json::value_to<int>(o.at("version")) != 1)
            throw wrong("expected version 1, found " + std::to_string(boost::json::value_to<int>(o.at("version"))));
        Calibration c;
        c.model_hash = boost::json::value_to<std::string>(o.at("model_hash"));
        c.made_with = boost::json::value_to<std::string>(o.at("made_with"));
        c.made_at = boost::json::value_to<std::int64_t>(o.at("made_at"));
        c.note = boost::json::value_to<std::string>(o.at("note"));
        c.logprob = boost::json::value_to<double>(o.at("logprob"));
        c.entropy = boost::json::value_to<double>(o.at("entropy"));
        c.tokens = numbers<std::int32_t>(o.at("tokens"));
        c.rows = numbers<std::int32_t>(o.at("rows"));
        c.ids = numbers<std::int32_t>(o.at("ids"));
        c.logits = numbers<float>(o.at("logits"));
        for (const auto& [name, hash] : o.at("tensors").as_object()) c.tensors.emplace(name, boost::json::value_to<std::string>(hash));
        if (c.logits.size() != c.rows.size() * c.ids.size() || c.ids.size() < 2 || c.rows.empty())
            throw wrong("expected rows x ids logits, found " + std::to_string(c.logits.size()) + " for " + std::to_string(c.rows.size()) + " x " +
                        std::to_string(c.ids.size()));
        for (std::size_t i = 0; i < c.rows.size(); ++i)
            if (c.rows[i] < 0 || static_cast<std::size_t>(c.rows[i]) >= c.tokens.size() || (i > 0 && c.rows[i] <= c.rows[i - 1]))
                throw wrong("rows[" + std::to_string(i) + "] is " + std::to_string(c.rows[i]) + ", expected ascending positions below " +
                            std::to_string(c.tokens.size()));
        return c;
    } catch (const base::StartError&) {
        throw;
    } catch (const std::exception& e) {
        throw wrong(e.what());
    }
}

Calibration calibrate(const Candidate& candidate, const Reference& reference, const ModelHashes& hashes, std::string note) {
    Calibration c;
    c.model_hash = hashes.model;
    c.tensors = hashes.tensors;
    c.note = std::move(note);
    c.made_at = std::time(nullptr);
    const std::int64_t vocab = candidate.hparams().vocab_size;
    const std::int32_t n = std::min(kTextTokens, candidate.context_length);
    c.tokens = probe_tokens(candidate, n);
    model::StepDriver driver = reference.driver(n);
    std::vector<std::int32_t> all = spread(n, n);
    const std::vector<float> logits = prefill_logits(driver, 0, 1, c.tokens, all, n, n);
    const RowStatistics statistics = row_statistics(logits, std::span{c.tokens}.subspan(1), vocab);
    if (!statistics.is_finite) throw base::AssayError{"calibrate: the reference itself gives logits that are not finite; there is nothing to sign off"};
    for (const double value : statistics.logprob) c.logprob += value / static_cast<double>(statistics.logprob.size());
    c.entropy = statistics.entropy;
    c.rows = spread(n, kFingerprintRows);
    c.ids = spread(static_cast<std::int32_t>(vocab), static_cast<std::int32_t>(std::min(vocab, kFingerprintIds)));
    for (const std::int32_t row : c.rows) {
        double mean = 0;
        for (const std::int32_t id : c.ids) mean += double{logits[static_cast<std::size_t>(row * vocab + id)]} / static_cast<double>(c.ids.size());
        for (const std::int32_t id : c.ids) c.logits.push_back(static_cast<float>(double{logits[static_cast<std::size_t>(row * vocab + id)]} - mean));
    }
    return c;
}

}  // namespace assay
