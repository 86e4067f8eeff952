#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "abi/common.h"
#include "daemon/model/model_file.hpp"

namespace assay {

struct Candidate;
struct Reference;

/// Hashes of what a model file holds: 64 bits a tensor, and one over names, shapes, formats, metadata and
/// all tensors. Made against accidents, not against attackers.
struct ModelHashes {
    std::string model;                           ///< 64 hexadecimal digits
    std::map<std::string, std::string> tensors;  ///< by name, 16 hexadecimal digits
};
/// Reads the whole file once, lanes at a time.
[[nodiscard]] ModelHashes hash_model(const model::ModelFile& file, const assay_lanes* lanes);

/// The 64-bit hash of bytes behind each other. Not cryptographic.
class ContentHash {
public:
    void update(const void* data, std::size_t bytes);
    [[nodiscard]] std::uint64_t value() const;

private:
    std::uint64_t state_[4] = {0x9e3779b97f4a7c15ULL, 0xbf58476d1ce4e5b9ULL, 0x94d049bb133111ebULL, 0x2545f4914f6cdd1dULL};
    std::uint64_t length_ = 0;
};

/// What a model said when somebody had looked at it and found it good: by the reference plan, for one
/// file. Where it exists, the model is judged by it (docs/assay.md, "Calibration").
struct Calibration {
    std::string model_hash;
    std::map<std::string, std::string> tensors;
    std::vector<std::int32_t> tokens;       ///< of the text
    double logprob = 0;                     ///< mean natural log-probability of its tokens
    double entropy = 0;                     ///< mean, nats
    std::vector<std::int32_t> rows;         ///< positions of the fingerprint
    std::vector<std::int32_t> ids;          ///< tokens whose logits it holds, the same in each row
    std::vector<float> logits;              ///< [rows, ids], without the mean of the row's ids
    std::string made_with;                  ///< hash of the reference plan
    std::string note;                       ///< who found it good, and how
    std::int64_t made_at = 0;               ///< seconds since 1970

    [[nodiscard]] std::string to_json() const;
    /// Throws base::ConfigError naming the file and what is wrong with it.
    [[nodiscard]] static Calibration from_json(std::string_view text, const std::string& file);
};

/// Runs the text by definition and writes down what came.
[[nodiscard]] Calibration calibrate(const Candidate& candidate, const Reference& reference, const ModelHashes& hashes, std::string note);

}  // namespace assay
