#include "plugins/quant/cuda-ggml/matmul.hpp"

#include "plugins/quant/cuda-ggml/gemv.cuh"
#include "plugins/quant/cuda-ggml/quantize.cuh"
#include "plugins/quant/ggml/query.hpp"

#include <algorithm>

namespace cuda_ggml {
namespace {

constexpr std::uint64_t kAlignment = 256;
/// Weights are widened for the tensor cores in pieces of about this many bytes.
constexpr std::int64_t kPieceBytes = std::int64_t{256} << 20;

/// Who computes a product.
enum class Path { integer, plain, tensor };

bool is_quantized(const WeightView& w) {
    return ggml::formats()[static_cast<std::size_t>(w.id)].abi.block_cols > 1;
}

/// f16 and bf16 are read where they lie; f32 and the integers would lose bits.
bool fits_tensor_cores(const WeightView& w) {
    return is_quantized(w) || w.id == FormatId::f16 || w.id == FormatId::bf16;
}

Path path_of(std::int32_t op, const WeightView& w, std::uint32_t flags, std::int64_t slots) {
    const bool is_precise = (flags & ASSAY_MM_PRECISE) != 0;
    if (!is_precise && op != ASSAY_Q_GROUPED && slots > kMaxGemvSlots && fits_tensor_cores(w)) return Path::tensor;
    return !is_precise && has_integer_kernel(w) ? Path::integer : Path::plain;
}

Half half_of(const WeightView& w) {
    return w.id == FormatId::bf16 ? Half::bf16 : Half::f16;
}
/// Planes of x for the tensor cores: plain weights are exact, so x should be too.
std::int32_t tensor_planes(const WeightView& w, std::uint32_t flags) {
    return (flags & ASSAY_MM_FINE) != 0 || !is_quantized(w) ? 2 : 1;
}
std::int64_t padded(std::int64_t k) {
    return (k + 7) / 8 * 8;
}
std::int64_t piece_rows(std::int64_t rows, std::int64_t k) {
    return std::clamp<std::int64_t>(kPieceBytes / (2 * padded(k)) / 128 * 128, 128, std::max<std::int64_t>(rows, 128));
}

/// A bump allocator over the workspace; with a null base it only measures.
class Scratch {
public:
    explicit Scratch(void* base) : base_{static_cast<std::byte*>(base)} {}
    template <class T = std::byte>
    T* take(std::uint64_t count) {
        const std::uint64_t at = used_;
        used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
        return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
    }
    [[nodiscard]] std::uint64_t used() const { return used_; }

private:
    std::byte* base_;
    std::uint64_t used_ = 0;
};

/// The scratch of a call. Sized by the most that flags may ask for.
struct Layout {
    GemmHeader* header;
    std::uint16_t* x;           // planes, for the tensor cores
    std::uint16_t* w;           // a piece of widened weights
    std::byte* cublas;
    std::uint8_t* quantized;    // x, for the integer kernels
    float* product[2];          // of a gated unit whose parts do not meet in one kernel
    std::uint64_t bytes;
};

Layout lay_out(void* base, const Instance& self, std::int32_t op, const assay_weight* const* w, std::int32_t num_weights,
               std::int64_t num_x, std::int64_t slots) {
    Scratch scratch{base};
    Layout l{};
    const std::int64_t k = w[0]->cols, heads = op == ASSAY_Q_BATCHED ? w[0]->experts : 1;
    std::int64_t max_rows = 0, max_n = 0;
    for (std::int32_t i = 0; i < num_weights; ++i) {
        max_rows = std::max(max_rows, w[i]->rows * heads);
        max_n = std::max(max_n, w[i]->rows);
    }
    const auto count = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    l.header = scratch.take<GemmHeader>(1);
    if (op != ASSAY_Q_GROUPED && slots > kMaxGemvSlots) {
        l.x = scratch.take<std::uint16_t>(count(2 * num_x * heads * padded(k)));
        // Heads are widened together: a batched product has one stride between them.
        const std::int64_t rows = op == ASSAY_Q_BATCHED ? max_rows : std::min(max_rows, piece_rows(max_rows, k));
        l.w = scratch.take<std::uint16_t>(count(rows * padded(k)));
        if (self.cublas != nullptr) l.cublas = scratch.take(Cublas::kWorkspaceBytes);
    }
    l.quantized = scratch.take<std::uint8_t>(count(2 * std::min(num_x, std::max<std::int64_t>(slots, 1)) * heads * quantized_bytes(k)));
    if (num_weights == 2)
        for (float*& product : l.product) product = scratch.take<float>(count(slots * max_n));
    l.bytes = scratch.used();
    return l;
}

/// A checked call on its way to the kernels.
class Call {
public:
    Call(Instance& self, std::int32_t op, const assay_matmul& args, const assay_stream& s, assay_error* err)
        : self_{self}, op_{op}, a_{args}, s_{&s}, err_{err} {
        num_x_ = a_.x.shape[0];
        num_experts_ = a_.w[0]->experts;
        slots_ = op == ASSAY_Q_GROUPED ? a_.num_slots : num_x_;
        for (std::int32_t i = 0; i < a_.num_weights; ++i) {
            view_[i] = view_of(*a_.w[i]);
            path_[i] = path_of(op, view_[i], a_.flags, slots_);
        }
        l_ = lay_out(a_.workspace, self, op, a_.w, a_.num_weights, num_x_, slots_);
    }

    assay_status run() {
        if (slots_ == 0 || (op_ == ASSAY_Q_GROUPED && num_x_ == 0)) return ASSAY_OK;
        if (a_.workspace == nullptr || a_.workspace_bytes < l_.bytes ||
            reinterpret_cast<std::uintptr_t>(a_.workspace) % kAlignment != 0)
            return sdk::fail(err_, ASSAY_INVALID, "workspace: %llu bytes, want at least %llu, %llu-byte aligned",
                             static_cast<unsigned long long>(a_.workspace_bytes),
                             static_cast<unsigned long long>(l_.bytes), static_cast<unsigned long long>(kAlignment));
        return a_.glu != ASSAY_GLU_NONE ? run_gated() : run_each();
    }

private:
    assay_status status(cudaError_t error, const char* what) { return cuda::status_of(error, err_, what); }

    /// Weights that one launch can take: of one format, layout and path.
    bool is_alike(int i, int j) const {
        return view_[i].id == view_[j].id && view_[i].is_planar == view_[j].is_planar && path_[i] == path_[j] &&
               path_[i] != Path::tensor;
    }

    assay_status run_each() {
        for (std::int32_t first = 0; first < a_.num_weights;) {
            std::int32_t last = first + 1;
            while (last < a_.num_weights && is_alike(first, last)) ++last;
            assay_status status = ASSAY_OK;
            if (path_[first] == Path::tensor)
                status = tensor(first, y_of(first), a_.y[first].stride[0], y_head(first), accumulates());
            else
                status = gemv(first, last - first, ASSAY_GLU_NONE, nullptr);
            if (status != ASSAY_OK) return status;
            if (path_[first] == Path::tensor && a_.bias[first].data != nullptr)
                if (const assay_status s = add_bias(first); s != ASSAY_OK) return s;
            first = last;
        }
        return ASSAY_OK;
    }

    assay_status run_gated() {
        if (is_alike(0, 1)) return gemv(0, 2, a_.glu, nullptr);
        const std::int64_t n = a_.w[0]->rows;
        for (int i = 0; i < 2; ++i) {
            const assay_status status = path_[i] == Path::tensor ? tensor(i, l_.product[i], n, 0, false)
                                                                 : gemv(i, 1, ASSAY_GLU_NONE, l_.product[i]);
            if (status != ASSAY_OK) return status;
        }
        Epilogue e = epilogue(0);
        e.g = l_.product[0];
        e.u = l_.product[1];
        e.bias_u = static_cast<const float*>(a_.bias[1].data);
        e.glu = a_.glu;
        e.alpha = a_.glu_alpha;
        e.limit = a_.glu_limit;
        e.accumulate = accumulates();
        return status(launch_epilogue(e, s_), "the gated unit");
    }

    [[nodiscard]] bool accumulates() const { return (a_.flags & ASSAY_MM_ACCUMULATE) != 0; }
    [[nodiscard]] float* y_of(int i) const { return static_cast<float*>(a_.y[i].data); }
    [[nodiscard]] std::int64_t y_head(int i) const { return op_ == ASSAY_Q_BATCHED ? a_.y[i].stride[1] : 0; }

    [[nodiscard]] Epilogue epilogue(int i) const {
        Epilogue e{};
        e.bias_g = static_cast<const float*>(a_.bias[i].data);
        e.bias_stride = op_ == ASSAY_Q_GROUPED ? a_.bias[i].stride[0] : 0;
        e.offset = op_ == ASSAY_Q_GROUPED ? a_.expert_offset : nullptr;
        e.num_experts = static_cast<std::int32_t>(num_experts_);
        e.y = y_of(i);
        e.y_stride = a_.y[i].stride[0];
        e.rows = static_cast<std::int32_t>(slots_);
        e.n = static_cast<std::int32_t>(a_.w[i]->rows);
        return e;
    }

    assay_status add_bias(int i) {
        return status(launch_add_bias(y_of(i), a_.y[i].stride[0], static_cast<const float*>(a_.bias[i].data),
                                      static_cast<std::int32_t>(slots_), static_cast<std::int32_t>(a_.w[i]->rows), s_),
                      "the bias");
    }

    // ---- few rows --------------------------------------------------------------------------------

    /// @param product  null: into y, with bias and residual; else the bare product, dense
    assay_status gemv(int first, int count, std::int32_t glu, float* product) {
        GemvArgs g{};
        for (int j = 0; j < count; ++j) {
            const int i = first + j;
            GemvOutput& out = g.out[j];
            out.w = view_[i];
            out.rows = static_cast<std::int32_t>(a_.w[i]->rows);
            const int y = glu != ASSAY_GLU_NONE ? first : i;
            out.y = product != nullptr ? product : y_of(y);
            out.y_stride = product != nullptr ? out.rows : a_.y[y].stride[0];
            out.y_head = product != nullptr ? 0 : y_head(y);
            if (product != nullptr) continue;
            out.bias = static_cast<const float*>(a_.bias[i].data);
            out.bias_stride = op_ == ASSAY_Q_GROUPED ? a_.bias[i].stride[0] : 0;
        }
        g.num_outputs = glu != ASSAY_GLU_NONE ? 1 : count;
        g.glu = {glu, a_.glu_alpha, a_.glu_limit};
        g.accumulate = product == nullptr && accumulates();
        g.op = op_;
        g.k = static_cast<std::int32_t>(a_.w[first]->cols);
        g.num_experts = static_cast<std::int32_t>(num_experts_);
        g.num_slots = static_cast<std::int32_t>(slots_);
        g.num_x_rows = static_cast<std::int32_t>(num_x_);
        g.x = static_cast<const float*>(a_.x.data);
        g.x_stride = a_.x.stride[0];
        g.x_head = op_ == ASSAY_Q_BATCHED ? a_.x.stride[1] : 0;
        g.row_ids = a_.row_ids;
        g.offset = a_.expert_offset;
        // Slots that meet one weight: all of a plain product, an expert's of a grouped one.
        const std::int64_t most =
            op_ == ASSAY_Q_GROUPED ? std::min<std::int64_t>(slots_, std::max(a_.max_rows_per_expert, 1)) : slots_;
        if (path_[first] == Path::plain)
            return status(launch_plain(g, static_cast<std::int32_t>(std::min<std::int64_t>(most, 8)), s_), "a product");

        g.planes = (a_.flags & ASSAY_MM_FINE) != 0 ? 2 : 1;
        std::int32_t rows = 1;
        while (rows < kMaxIntegerRows && rows < most * g.planes) rows *= 2;
        g.tile = rows / g.planes;
        if (rows > 2) {
            g.is_quantized_by_slot = op_ == ASSAY_Q_GROUPED && num_x_ > slots_;
            g.quantized = l_.quantized;
            if (!is_quantized_)
                if (const assay_status s = status(launch_quantize(g, l_.quantized, s_), "quantizing x"); s != ASSAY_OK)
                    return s;
            is_quantized_ = true;  // all weights of the call read the same rows
        }
        return status(launch_integer(g, s_), "a product");
    }

    // ---- many rows -------------------------------------------------------------------------------

    assay_status tensor(int i, float* y, std::int64_t y_stride, std::int64_t y_head, bool accumulate) {
        const WeightView& w = view_[i];
        const std::int64_t k = a_.w[i]->cols, heads = op_ == ASSAY_Q_BATCHED ? num_experts_ : 1;
        const std::int32_t planes = tensor_planes(w, a_.flags);
        const auto k32 = static_cast<std::int32_t>(k), padded_k = static_cast<std::int32_t>(padded(k));
        if (converted_ != static_cast<int>(half_of(w)) + 2 * planes) {
            const ConvertX c{static_cast<const float*>(a_.x.data), a_.x.stride[0],
                             op_ == ASSAY_Q_BATCHED ? a_.x.stride[1] : 0, static_cast<std::int32_t>(num_x_),
                             static_cast<std::int32_t>(heads), k32, padded_k, planes, half_of(w), l_.header, l_.x};
            if (const assay_status s = status(launch_convert_x(c, s_), "converting x"); s != ASSAY_OK) return s;
            converted_ = static_cast<int>(half_of(w)) + 2 * planes;
        }
        Gemm g{};
        g.type = half_of(w);
        g.x_stride = heads * padded_k;
        g.x_batch = padded_k;
        g.y_stride = y_stride;
        g.y_batch = y_head;
        g.m = static_cast<std::int32_t>(num_x_);
        g.k = padded_k;
        g.batch = static_cast<std::int32_t>(heads);
        const std::int64_t rows = a_.w[i]->rows;
        const std::int64_t step = op_ == ASSAY_Q_BATCHED ? rows : piece_rows(rows, k);
        const bool is_in_place = !is_quantized(w) && k % 8 == 0;
        for (std::int64_t first = 0; first < rows; first += step) {
            const std::int64_t count = std::min(step, rows - first);
            g.n = static_cast<std::int32_t>(count);
            g.w_stride = padded_k;
            g.w_batch = rows * padded_k;
            if (is_in_place) {
                g.w = reinterpret_cast<const std::uint16_t*>(w.plane[0]) + first * k;
            } else {
                const cudaError_t error =
                    launch_dequantize(w, first, count * heads, k32, padded_k, half_of(w), l_.w, s_);
                if (error != cudaSuccess) return status(error, "widening weights");
                g.w = l_.w;
            }
            for (std::int32_t plane = 0; plane < planes; ++plane) {
                g.x = l_.x + plane * num_x_ * heads * padded_k;
                g.alpha = plane == 0 ? &l_.header->alpha : &l_.header->alpha_low;
                g.beta = plane > 0 || accumulate ? &l_.header->one : &l_.header->zero;
                g.y = y + first;
                const assay_status done = self_.cublas != nullptr ? self_.cublas->run(g, l_.cublas, s_, err_)
                                                                  : status(launch_mma(g, s_), "a product");
                if (done != ASSAY_OK) return done;
            }
        }
        return ASSAY_OK;
    }

    Instance& self_;
    std::int32_t op_;
    const assay_matmul& a_;
    const assay_stream* s_;
    assay_error* err_;
    std::int64_t num_x_, num_experts_, slots_;
    WeightView view_[ASSAY_MAX_FUSED];
    Path path_[ASSAY_MAX_FUSED];
    Layout l_;
    bool is_quantized_ = false;
    int converted_ = -1;  // type and planes of what is in l_.x
};

}  // namespace

std::uint64_t workspace_bytes(const Instance& self, std::int32_t op, const assay_weight* const* w,
                              std::int32_t num_weights, std::int64_t max_m) noexcept {
    if (op == ASSAY_Q_ROWS || op == ASSAY_Q_REPACK || w == nullptr || num_weights < 1) return 0;
    for (std::int32_t i = 0; i < num_weights; ++i)  // such a call is refused before it needs any
        if (w[i] == nullptr || w[i]->format == nullptr || ggml::find_format(w[i]->format) == nullptr) return 0;
    return lay_out(nullptr, self, op, w, num_weights, max_m, max_m).bytes;
}

assay_status run_matmul(Instance& self, std::int32_t op, const assay_matmul& args, const assay_stream& s,
                        assay_error* err) noexcept {
    if (args.num_weights < 1 || args.num_weights > ASSAY_MAX_FUSED)
        return ggml::check_arguments(op, args, err);
    // The shared checks know the stored layout only.
    assay_weight stored[ASSAY_MAX_FUSED];
    assay_matmul plain = args;
    for (std::int32_t i = 0; i < args.num_weights; ++i) {
        if (const assay_status status = check(args.w[i], err); status != ASSAY_OK) return status;
        stored[i] = as_stored(*args.w[i]);
        plain.w[i] = &stored[i];
    }
    if (const assay_status status = ggml::check_arguments(op, plain, err); status != ASSAY_OK) return status;
    return Call{self, op, args, s, err}.run();
}

}  // namespace cuda_ggml
