#pragma once

// The same products as in integer.hpp for many tokens: compute-bound. Weights are unpacked once
// into a panel, then used for every token.

#include "plugins/quant/ggml/simd/integer.hpp"

namespace ggml {
namespace {

/// What the arithmetic of a panel depends on: formats that agree in it share its code.
template <int kGroupSize, bool kMin, bool kIsWide, int kMinus>
struct Arithmetic {
    static constexpr int kGroup = kGroupSize, kOffset = kMinus;
    static constexpr bool kHasMin = kMin, kWide = kIsWide;
};
template <class F>
using ArithmeticOf = Arithmetic<F::kGroup, F::kHasMin, F::kWide, F::kOffset>;

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
    UNROLL
    for (int i = 0; i < 4; ++i) {
        a[2 * i] = _mm256_unpacklo_epi32(row[2 * i], row[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(row[2 * i], row[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < 2; ++i) {
        b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; ++i) {
        out[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        out[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/// As offset_shift(), for panels. With VNNI their bytes are weight + 128, so that the missing part
/// is at hand in memory; formats without offset stay as they are and miss nothing.
template <class F>
constexpr int panel_shift() {
    return kHasVnni && offset_shift<F>() >= 0 ? 0 : offset_shift<F>();
}

template <class F>
ALWAYS_INLINE __m256i panel_byte(__m256i q) {
    if constexpr (!kHasVnni || panel_shift<F>() < 0) return q;
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
        UNROLL
        for (int i = 0; i < 8; ++i) q[i][r] = panel_byte<F>(run.q[i]);
        UNROLL
        for (int i = 0; i < kScaleParts; ++i) scale[i][r] = _mm256_castps_si256(run.scale[i]);
        if constexpr (F::kHasMin) UNROLL
        for (int i = 0; i < kScaleParts; ++i) min[i][r] = _mm256_castps_si256(run.min[i]);
    }
    __m256i columns[8];
    const auto put = [&](int c, std::uint8_t* to) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(to + row0 * 4), columns[c]);
    };
    UNROLL
    for (int i = 0; i < 8;
         ++i) {  // dwords of group i / 2 in its half i % 2, then of the group four on
        transpose8(q[i], columns);
        UNROLL
        for (int c = 0; c < 8; ++c)
            put(c, out + ((i / 2 + c / 4 * 4) * 8 + i % 2 * 4 + c % 4) * kPanelRows * 4);
    }
    UNROLL
    for (int i = 0; i < kScaleParts; ++i) {
        transpose8(scale[i], columns);
        UNROLL
        for (int c = 0; c < 8; ++c)
            put(c, out + PanelRun<F>::kScales + (i * 8 + c) * kPanelRows * 4);
        if constexpr (F::kHasMin) {
            transpose8(min[i], columns);
            UNROLL
            for (int c = 0; c < 8; ++c)
                put(c, out + PanelRun<F>::kMins + (i * 8 + c) * kPanelRows * 4);
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

#if defined(__AVX512F__)
inline constexpr int kSubPanels = 2;  // share each broadcast of x
#else
inline constexpr int kSubPanels = 1;
#endif
inline constexpr int kPanelTokens = 8;  // lanes of so many stay in the first-level cache

/// Four products a row added to its sum, two steps of them.
template <class F>
ALWAYS_INLINE Rows add_two_steps(Rows sum, const Rows w[2], Rows x0, Rows x1) {
#if defined(__AVX512VNNI__)
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, w[0], x0), w[1], x1);
#else
    if constexpr (F::kWide)
        return add(add(sum, add_pairs(pairs_signed(w[0], x0))), add_pairs(pairs_signed(w[1], x1)));
    // Two pairs of products fit 16 bits: at most 63 * 127 * 4 = 32004.
    return add(sum, add_pairs(add16(pairs_unsigned(w[0], x0), pairs_unsigned(w[1], x1))));
#endif
}

/// Adds the lanes of a panel in the order of sum_lanes().
template <int kLanes>
ALWAYS_INLINE RowsF sum_panel_lanes(const RowsF* lane, int stride) {
    RowsF eight[8];
    UNROLL
    for (int i = 0; i < 8; ++i)
        eight[i] = kLanes == 8 ? lane[i * stride] : add_f(lane[i * stride], lane[(i + 8) * stride]);
    RowsF four[4];
    UNROLL
    for (int i = 0; i < 4; ++i) four[i] = add_f(eight[i], eight[i + 4]);
    return add_f(add_f(four[0], four[2]), add_f(four[1], four[3]));
}

/// kSubPanels panels times kTokens tokens.
/// @param panel  the first panel; the next one follows at panel_bytes
/// @param out    [num_tokens, kTileRows], at the first of these rows
template <class F, int kTokens>
void panel_tokens(const TileArgs& args, const std::uint8_t* panel, std::int64_t panel_bytes,
                  int first, float* out) {
    using Panel = PanelRun<F>;
    using Groups = typename GroupsOf<F>::type;
    constexpr int kSteps = F::kGroup / 4, kShift = panel_shift<F>();
    const QuantizedX& x = *args.quantized;
    const std::uint8_t* xq[kTokens];
    UNROLL
    for (int t = 0; t < kTokens; ++t) xq[t] = x.data + args.x_index[first + t] * x.row_bytes();

    RowsF lanes[Panel::kLanes][kTokens][kSubPanels];
    for (int l = 0; l < Panel::kLanes; ++l)
        for (int t = 0; t < kTokens; ++t)
            for (int s = 0; s < kSubPanels; ++s) lanes[l][t][s] = zero_rows();

    std::int64_t record = 0;
    for (std::int64_t k = 0; k < args.k;
         k += kRunCols, record += x.run_bytes, panel += Panel::kBytes) {
        const std::int64_t left = (args.k - k) / F::kGroup;
        const int num_groups = left < Panel::kLanes ? static_cast<int>(left) : Panel::kLanes;
        for (int g = 0; g < num_groups; ++g) {
            const int l = F::kGroup == 32 ? g : lane16(g);
            const int offset = F::kGroup == 32 ? offset_in_run(g, 0) : offset_in_run(g / 2, g % 2);
            const std::int64_t at = record + offset, groups = record + GroupsOf<F>::at(x) + 4 * l;
            Rows w[kSubPanels][kSteps];
            RowsF scale[kSubPanels], min[kSubPanels];
            UNROLL
            for (int s = 0; s < kSubPanels; ++s) {
                const std::uint8_t* p = panel + s * panel_bytes;
                UNROLL
                for (int i = 0; i < kSteps; ++i)
                    w[s][i] = load_rows(p + (g * kSteps + i) * kPanelRows * 4);
                const auto* floats = reinterpret_cast<const float*>(p) + l * kPanelRows;
                scale[s] = load_rows_f(floats + Panel::kScales / 4);
                if constexpr (F::kHasMin) min[s] = load_rows_f(floats + Panel::kMins / 4);
            }
            UNROLL
            for (int t = 0; t < kTokens; ++t) {
                const std::uint8_t* field = xq[t] + groups;
                const auto neg128_sum = read<std::int32_t>(field + offsetof(Groups, neg128_sum));
                Rows sum[kSubPanels];
                UNROLL
                for (int s = 0; s < kSubPanels; ++s)
                    sum[s] = broadcast(kShift < 0 ? 0 : neg128_sum >> (kShift & 31));
                UNROLL
                for (int i = 0; i < kSteps; i += 2) {  // halves of a group of 32 are 32 bytes apart
                    const std::uint8_t* at_step = xq[t] + at + i / 4 * 32 + i % 4 * 4;
                    const Rows x0 = broadcast(read<std::int32_t>(at_step));
                    const Rows x1 = broadcast(read<std::int32_t>(at_step + 4));
                    UNROLL
                    for (int s = 0; s < kSubPanels; ++s)
                        sum[s] = add_two_steps<F>(sum[s], &w[s][i], x0, x1);
                }
                const RowsF x_scale = broadcast_f(read<float>(field));
                UNROLL
                for (int s = 0; s < kSubPanels; ++s) {
                    RowsF lane = fma_f(to_float(sum[s]), mul_f(scale[s], x_scale), lanes[l][t][s]);
                    if constexpr (F::kHasMin)
                        lane = fnma_f(
                            min[s], broadcast_f(read<float>(field + offsetof(Groups, sum))), lane);
                    lanes[l][t][s] = lane;
                }
            }
        }
    }
    for (int t = 0; t < kTokens; ++t)
        for (int s = 0; s < kSubPanels; ++s)
            store_rows_f(out + (first + t) * kTileRows + s * kPanelRows,
                         sum_panel_lanes<Panel::kLanes>(&lanes[0][t][s], kTokens * kSubPanels));
}

template <class F>
void integer_panel(const TileArgs& args) {
    constexpr int kRows = kSubPanels * kPanelRows;
    const std::int64_t panel_bytes = (args.k + kRunCols - 1) / kRunCols * PanelRun<F>::kBytes;
    for (int row = 0; row < args.num_rows; row += kRows) {
        const std::uint8_t* panel =
            static_cast<const std::uint8_t*>(args.panel) + row / kPanelRows * panel_bytes;
        float* out = static_cast<float*>(args.out) + row;
        int t = 0;
        for (; t + kPanelTokens <= args.num_tokens; t += kPanelTokens)
            panel_tokens<F, kPanelTokens>(args, panel, panel_bytes, t, out);
        const int rest = args.num_tokens - t;
        if (rest & 4) panel_tokens<F, 4>(args, panel, panel_bytes, t, out);
        if (rest & 2) panel_tokens<F, 2>(args, panel, panel_bytes, t + (rest & 4), out);
        if (rest & 1) panel_tokens<F, 1>(args, panel, panel_bytes, t + (rest & 6), out);
    }
}

}  // namespace
}  // namespace ggml
