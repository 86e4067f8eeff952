#pragma once

// Products of 8-bit weights and 8-bit activations, exact within a group, f32 between groups.
//
// The arithmetic, the same for one row and one token as for any tile: with L = 256 / kGroup lanes,
// lane l takes the groups l, l + L, ... in order,
//     lane = fma(isum, scale_w * scale_x, lane);  with a min: lane = fma(-min, scale_x * sum_x,
//     lane)
// where isum is the integer sum over the group, and the lanes are added at the end in the order of
// sum_lanes(). The lanes are what makes both shapes possible: with one row they sit side by side in
// a register, with a panel of rows they are separate registers.

#include "plugins/quant/ggml/simd/unpack.hpp"

namespace ggml {
namespace {

/// What the integer sum of a group lacks because q is stored with an offset: kOffset * -sum(x), as
/// a right shift of -128 * sum(x); -1 when there is nothing to add.
template <class F>
constexpr int offset_shift() {
    if (F::kWide) return kHasVnni ? 0 : -1;
    if (F::kOffset == 0) return -1;
    return 7 - __builtin_ctz(F::kOffset);
}

// ---- one row, one token: bandwidth-bound, reads a run of weights and 256 bytes of x a step ------

/// Eight registers of eight partial sums to the sums of groups of 32.
ALWAYS_INLINE void sum_quarters(const __m256i s[8], __m256i out[2]) {
    __m256i half[4];
    for (int i = 0; i < 4; ++i)
        half[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(s[2 * i], s[2 * i + 1]),
                                   _mm256_unpackhi_epi32(s[2 * i], s[2 * i + 1]));
    for (int i = 0; i < 2; ++i)
        out[i] = _mm256_add_epi32(_mm256_unpacklo_epi64(half[2 * i], half[2 * i + 1]),
                                  _mm256_unpackhi_epi64(half[2 * i], half[2 * i + 1]));
}

ALWAYS_INLINE __m256 load_floats(const float* p) {
    return _mm256_load_ps(p);
}
ALWAYS_INLINE __m256i load_ints(const std::int32_t* p) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}

template <class F, bool kFull, class Groups>
ALWAYS_INLINE void dot_run(const std::uint8_t* w, int num_groups, const std::int8_t* xq,
                           const Groups& x, __m256 lanes[2]) {
    constexpr int kRegisters = F::kGroup == 32 ? 1 : 2;
    Run run;
    F::template load<kFull>(w, num_groups, run);
    __m256i s[8];
    for (int i = 0; i < 8; ++i)
        s[i] = dot4<F::kWide>(run.q[i],
                              _mm256_load_si256(reinterpret_cast<const __m256i*>(xq + 32 * i)));
    __m256i sums[2];
    sum_quarters(s, sums);
    if constexpr (F::kGroup == 32)
        sums[0] = _mm256_add_epi32(_mm256_permute2x128_si256(sums[0], sums[1], 0x20),
                                   _mm256_permute2x128_si256(sums[0], sums[1], 0x31));
    for (int i = 0; i < kRegisters; ++i) {
        if constexpr (constexpr int kShift = offset_shift<F>(); kShift >= 0)
            sums[i] = _mm256_add_epi32(sums[i],
                                       _mm256_srai_epi32(load_ints(x.neg128_sum + 8 * i), kShift));
        const __m256 scale = _mm256_mul_ps(run.scale[i], load_floats(x.scale + 8 * i));
        lanes[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[i]), scale, lanes[i]);
        if constexpr (F::kHasMin)
            lanes[i] = _mm256_fnmadd_ps(run.min[i], load_floats(x.sum + 8 * i), lanes[i]);
    }
}

template <class F>
ALWAYS_INLINE auto groups_of(const QuantizedX& x) {
    if constexpr (F::kGroup == 32)
        return x.groups32;
    else
        return x.groups16;
}

template <class F>
void integer_direct(const TileArgs& args) {
    const QuantizedX& x = *args.quantized;
    const std::int64_t num_full = args.k / kRunCols;
    const int rest = static_cast<int>(args.k % kRunCols / 32);
    auto* out = static_cast<float*>(args.out);
    for (int t = 0; t < args.num_tokens; ++t) {
        const std::int64_t first_run = args.x_index[t] * x.num_runs;
        for (int r = 0; r < args.num_rows; ++r) {
            const std::uint8_t* w = args.rows + r * args.row_bytes;
            const std::int8_t* xq = x.q + first_run * kRunCols;
            const auto* groups = groups_of<F>(x) + first_run;
            __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
            for (std::int64_t run = 0; run < num_full;
                 ++run, w += F::kRunBytes, xq += kRunCols, ++groups)
                dot_run<F, true>(w, 8, xq, *groups, lanes);
            if (rest > 0) dot_run<F, false>(w, rest, xq, *groups, lanes);
            if constexpr (F::kGroup == 16) lanes[0] = _mm256_add_ps(lanes[0], lanes[1]);
            out[t * kTileRows + r] = sum_lanes(lanes[0]);
        }
    }
}

// ---- panels: compute-bound; weights unpacked once, then used for every token --------------------

/// A panel holds kPanelRows rows; a run of it, 256 columns: q as [64][row][4] bytes, scales as
/// [lane][row] f32, mins likewise. kTileRows rows are one panel or two, one after the other.
template <class F>
struct PanelRun {
    static constexpr int kLanes = kRunCols / F::kGroup;
    static constexpr std::int64_t kScales = kPanelRows * kRunCols;
    static constexpr std::int64_t kMins = kScales + kLanes * kPanelRows * 4;
    static constexpr std::int64_t kBytes = F::kHasMin ? kMins + kLanes * kPanelRows * 4 : kMins;
};

template <class F>
std::int64_t integer_panel_bytes(std::int64_t k) {
    return (k + kRunCols - 1) / kRunCols * PanelRun<F>::kBytes * (kTileRows / kPanelRows);
}

/// Rows of eight dwords to columns: out[c] holds dword c of the eight rows.
ALWAYS_INLINE void transpose8(const __m256i row[8], __m256i out[8]) {
    __m256i a[8], b[8];
    for (int i = 0; i < 4; ++i) {
        a[2 * i] = _mm256_unpacklo_epi32(row[2 * i], row[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(row[2 * i], row[2 * i + 1]);
    }
    for (int i = 0; i < 2; ++i) {
        b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        out[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        out[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/// The byte as the panel kernel multiplies it: with VNNI weight + 128, else as it was unpacked.
template <class F>
ALWAYS_INLINE __m256i panel_byte(__m256i q) {
    if constexpr (!kHasVnni) return q;
    if constexpr (F::kWide) return _mm256_xor_si256(q, _mm256_set1_epi8(-128));
    return _mm256_add_epi8(q, _mm256_set1_epi8(static_cast<char>(128 - F::kOffset)));
}

/// Eight rows of one run into a panel, at `row0` of its kPanelRows rows.
template <class F>
void pack_run(const std::uint8_t* rows, std::int64_t row_bytes, int num_rows, int num_groups,
              std::uint8_t* out, int row0) {
    constexpr int kLanes = PanelRun<F>::kLanes, kScaleParts = kLanes / 8;
    __m256i q[8][8], scale[kScaleParts][8], min[kScaleParts][8];  // [..][row]
    for (int r = 0; r < 8; ++r) {
        Run run{};
        if (r < num_rows) {
            if (num_groups == 8)
                F::template load<true>(rows + r * row_bytes, 8, run);
            else
                F::template load<false>(rows + r * row_bytes, num_groups, run);
        }
        for (int i = 0; i < 8; ++i) q[i][r] = panel_byte<F>(run.q[i]);
        for (int i = 0; i < kScaleParts; ++i) scale[i][r] = _mm256_castps_si256(run.scale[i]);
        if constexpr (F::kHasMin)
            for (int i = 0; i < kScaleParts; ++i) min[i][r] = _mm256_castps_si256(run.min[i]);
    }
    __m256i columns[8];
    const auto put = [&](std::uint8_t* to) {
        for (int c = 0; c < 8; ++c)
            _mm256_store_si256(reinterpret_cast<__m256i*>(to + (c * kPanelRows + row0) * 4),
                               columns[c]);
    };
    for (int i = 0; i < 8; ++i) {
        transpose8(q[i], columns);
        put(out + i * 8 * kPanelRows * 4);
    }
    for (int i = 0; i < kScaleParts; ++i) {
        transpose8(scale[i], columns);
        put(out + PanelRun<F>::kScales + i * 8 * kPanelRows * 4);
        if constexpr (F::kHasMin) {
            transpose8(min[i], columns);
            put(out + PanelRun<F>::kMins + i * 8 * kPanelRows * 4);
        }
    }
}

template <class F>
void integer_pack(const PackArgs& args) {
    const std::int64_t num_runs = (args.k + kRunCols - 1) / kRunCols;
    auto* out = static_cast<std::uint8_t*>(args.panel);
    for (int first = 0; first < kTileRows; first += kPanelRows) {
        for (std::int64_t run = 0; run < num_runs; ++run, out += PanelRun<F>::kBytes) {
            const std::int64_t left = (args.k - run * kRunCols) / 32;
            const int num_groups = left < 8 ? static_cast<int>(left) : 8;
            for (int row0 = 0; row0 < kPanelRows; row0 += 8) {
                const int row = first + row0;
                pack_run<F>(args.rows + row * args.row_bytes + run * F::kRunBytes, args.row_bytes,
                            args.num_rows - row, num_groups, out, row0);
            }
        }
    }
}

/// The integer sum over a group for kPanelRows rows and one token.
template <class F>
ALWAYS_INLINE Rows group_sum(const Rows w[F::kGroup / 4], const std::int8_t* x,
                             std::int32_t neg128_sum) {
    constexpr int kSteps = F::kGroup / 4;
    [[maybe_unused]] constexpr int kShift = offset_shift<F>();
    Rows xs[kSteps];
    for (int i = 0; i < kSteps; ++i)
        xs[i] = broadcast(read<std::int32_t>(reinterpret_cast<const std::uint8_t*>(x) + 4 * i));
#if defined(__AVX512VNNI__)
    Rows even = broadcast(neg128_sum),
         odd = broadcast(0);  // two chains: a step takes several cycles
    for (int i = 0; i < kSteps; i += 2) {
        even = _mm512_dpbusd_epi32(even, w[i], xs[i]);
        odd = _mm512_dpbusd_epi32(odd, w[i + 1], xs[i + 1]);
    }
    return add(even, odd);
#else
    Rows sum = broadcast(kShift >= 0 ? neg128_sum >> (kShift >= 0 ? kShift : 0) : 0);
    for (int i = 0; i < kSteps; i += 2) {
        if constexpr (F::kWide) {
            sum = add(sum, add_pairs(pairs_signed(w[i], xs[i])));
            sum = add(sum, add_pairs(pairs_signed(w[i + 1], xs[i + 1])));
        } else {  // two pairs of products fit 16 bits: at most 63 * 127 * 4 = 32004
            sum = add(sum, add_pairs(add16(pairs_unsigned(w[i], xs[i]),
                                           pairs_unsigned(w[i + 1], xs[i + 1]))));
        }
    }
    return sum;
#endif
}

/// Adds the lanes of a panel in the order of sum_lanes().
template <int kLanes>
ALWAYS_INLINE RowsF sum_panel_lanes(const RowsF* lane, int stride) {
    RowsF eight[8];
    for (int i = 0; i < 8; ++i)
        eight[i] = kLanes == 8 ? lane[i * stride] : add_f(lane[i * stride], lane[(i + 8) * stride]);
    RowsF four[4];
    for (int i = 0; i < 4; ++i) four[i] = add_f(eight[i], eight[i + 4]);
    return add_f(add_f(four[0], four[2]), add_f(four[1], four[3]));
}

template <class F>
void integer_panel(const TileArgs& args) {
    using Panel = PanelRun<F>;
    constexpr int kSteps = F::kGroup / 4;
    const QuantizedX& x = *args.quantized;
    const int num_tokens = args.num_tokens;
    const std::int64_t num_runs = (args.k + kRunCols - 1) / kRunCols;
    const auto* panel = static_cast<const std::uint8_t*>(args.panel);
    for (int first = 0; first < kTileRows; first += kPanelRows) {
        RowsF lanes[Panel::kLanes][kTileTokens];
        for (int l = 0; l < Panel::kLanes; ++l)
            for (int t = 0; t < num_tokens; ++t) lanes[l][t] = zero_rows();
        for (std::int64_t run = 0; run < num_runs; ++run, panel += Panel::kBytes) {
            const std::int64_t left = (args.k - run * kRunCols) / F::kGroup;
            const int num_groups = left < Panel::kLanes ? static_cast<int>(left) : Panel::kLanes;
            for (int g = 0; g < num_groups; ++g) {
                const int l = F::kGroup == 32 ? g : lane16(g);
                Rows w[kSteps];
                for (int i = 0; i < kSteps; ++i)
                    w[i] = load_rows(panel + (g * kSteps + i) * kPanelRows * 4);
                const auto row_floats = [&](std::int64_t offset) {
                    return load_rows_f(reinterpret_cast<const float*>(panel + offset) +
                                       l * kPanelRows);
                };
                const RowsF scale = row_floats(Panel::kScales);
                for (int t = 0; t < num_tokens; ++t) {
                    const std::int64_t x_run = args.x_index[t] * x.num_runs + run;
                    const auto& groups = groups_of<F>(x)[x_run];
                    const Rows sum = group_sum<F>(w, x.q + x_run * kRunCols + g * F::kGroup,
                                                  groups.neg128_sum[l]);
                    RowsF lane = fma_f(to_float(sum), mul_f(scale, broadcast_f(groups.scale[l])),
                                       lanes[l][t]);
                    if constexpr (F::kHasMin)
                        lane = fnma_f(row_floats(Panel::kMins), broadcast_f(groups.sum[l]), lane);
                    lanes[l][t] = lane;
                }
            }
        }
        for (int t = 0; t < num_tokens; ++t)
            store_rows_f(static_cast<float*>(args.out) + t * kTileRows + first,
                         sum_panel_lanes<Panel::kLanes>(&lanes[0][t], kTileTokens));
    }
}

}  // namespace
}  // namespace ggml
