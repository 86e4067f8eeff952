#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/hparams.hpp"
#include "daemon/model/model_file.hpp"
#include "daemon/plugin/instance.hpp"

// MLA's up-projection of the latent, in the forms that files have it (architectures.md 2.6, 2.7).
//
// Here there is one: attn_k_b [H, L, N], transposed inside each head so that it meets the query, and
// attn_v_b [H, V, L]. Older files have attn_kv_b [H * (N + V), L] instead: per head N key rows, then
// V value rows. It is split at load. Value rows keep their stored blocks. Key rows are transposed:
// f32, f16 and bf16 as they are; of any other format the blocks run along L, so the keys are widened
// to f32, which is exact and costs 4 bytes an element. Files with both forms are checked: each must
// be the other, head by head.

namespace model {

/// Sizes of one layer's up-projection.
struct KvbShape {
    std::int64_t heads = 0, nope = 0, v = 0, latent = 0;  ///< H, N, V, L

    explicit KvbShape(const Hparams& h)
        : heads{h.num_q_heads}, nope{h.qk_nope_head_dim}, v{h.v_head_dim}, latent{h.kv_lora_rank} {}
    KvbShape(std::int64_t H, std::int64_t N, std::int64_t V, std::int64_t L)
        : heads{H}, nope{N}, v{V}, latent{L} {}
    [[nodiscard]] std::int64_t rows() const { return heads * (nope + v); }
};

/// The format that attn_k_b is held in when it is made from an attn_kv_b of `format`.
[[nodiscard]] std::string split_key_format(std::string_view format);

/// k_b [H, L, N] from kv_b [H * (N + V), L], elements of `element_bytes`.
void transpose_keys(const KvbShape& shape, std::size_t element_bytes, const std::byte* kv_b, std::byte* k_b);

/// The largest |difference| / |kv_b| (Euclidean) of a head's keys or values between the two forms.
struct KvbDifference {
    double relative = 0.0;
    std::int64_t head = 0;
    const char* part = "keys";
};
[[nodiscard]] KvbDifference compare_kv_b(const KvbShape& shape, const float* kv_b, const float* k_b,
                                         const float* v_b);
/// What two storings of one matrix in these formats may differ by: two formats of plain floats by
/// rounding; quantized ones by up to the error of the coarsest. Matrices that are not the same, or not
/// transposed, or of other heads, differ by about 1.4.
[[nodiscard]] double kv_b_bound(std::string_view kv_b, std::string_view k_b, std::string_view v_b);

/// Reads weights through the plugins that know their formats, makes keys of the one form for the other
/// and compares the two, layer after layer.
///
/// Throws base::ModelError naming the tensor. Thread: control.
class KvbReader {
public:
    KvbReader(const ModelFile& file, const KvbShape& shape, const plugin::Device& device,
              const plugin::Stream& stream)
        : file_{file}, shape_{shape}, device_{device}, stream_{stream} {}

    /// attn_k_b in split_key_format().
    [[nodiscard]] plugin::Buffer keys(const FileTensor& kv_b, const plugin::Quant& quant);

    struct Source {
        const FileTensor& tensor;
        const plugin::Quant& quant;
    };
    /// Refuses the file when the forms are not the same matrix.
    void check(const Source& kv_b, const Source& k_b, const Source& v_b);

    /// What was done, for the plan: a line each.
    [[nodiscard]] std::vector<std::string> notes() const;

private:
    [[nodiscard]] std::vector<std::byte> stored(const FileTensor& tensor) const;
    /// All rows of a tensor of `rows` by `cols`, in f32, on the host.
    [[nodiscard]] std::vector<float> widened(const Source& source, std::int64_t rows, std::int64_t cols) const;
    [[nodiscard]] plugin::Buffer uploaded(const std::vector<std::byte>& bytes) const;
    void copy(void* dst, const void* src, std::uint64_t bytes) const;

    const ModelFile& file_;
    KvbShape shape_;
    const plugin::Device& device_;
    const plugin::Stream& stream_;
    std::size_t num_split_ = 0, num_checked_ = 0;
    double worst_ = 0.0;
};

}  // namespace model
