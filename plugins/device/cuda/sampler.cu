// The draw, without a sort. Every cut (top_k, top_p, min_p) and the draw itself keep or name a prefix of
// one order: logit descending, id ascending. So each is a question "where does the running count, or
// the running mass, pass a target?", and a radix descent over the bits of the logits answers it:
// counts and masses by the top 11 bits, by the next 11 inside the bin that holds the answer, then by
// the last 10. What is left are equal logits, which have equal mass.
//
// A block draws for a row. Masses are fixed-point, so that their sums do not depend on the order in which
// threads add them: the same logits give the same token on every run.

#include "plugins/device/cuda/ops.hpp"
#include "plugins/device/cuda/rows.cuh"

namespace cuda {

using namespace views;

namespace {

constexpr int kThreads = 1024;
constexpr int kBins = 2048;
constexpr int kBinsPerThread = kBins / kThreads;
/// Mass of the most likely token. 2^22 tokens of that mass still fit into 64 bits.
constexpr double kOne = 1ull << 41;

using Mass = unsigned long long;

/// A prefix of the order.
struct Prefix {
    Mass mass;
    int count;
};
struct AddPrefix {
    __device__ Prefix operator()(const Prefix& a, const Prefix& b) const {
        return {a.mass + b.mass, a.count + b.count};
    }
};

struct Shared {
    Mass mass[kBins];
    int count[kBins];
    Prefix warp[32];
    float floats[32];
    int ints[32];
    Prefix before;  // results of a descent
    int bin;
    int id;
};

/// Larger for larger finite floats, never 0; 0 for what is not finite. -0 counts as +0.
__device__ unsigned order_key(float x) {
    if (!isfinite(x)) return 0;
    const int b = __float_as_int(x + 0.0f);
    return static_cast<unsigned>(b ^ ((b >> 31) | static_cast<int>(0x80000000u)));
}

/// What a prefix is asked: whether it holds so many candidates, or so much mass.
struct Target {
    enum Kind { count_at_least, mass_at_least, mass_above } kind;
    double value;
    __device__ bool is_reached(const Prefix& p) const {
        switch (kind) {
            case count_at_least:
                return static_cast<double>(p.count) >= value;
            case mass_at_least:
                return static_cast<double>(p.mass) >= value;
            default:
                return static_cast<double>(p.mass) > value;
        }
    }
};

/// The last candidate of a prefix: the tie-th (from 0) of those whose key is `key`.
struct Position {
    Prefix prefix;
    unsigned key;
    int tie;
};

class RowOrder {
public:
    __device__ RowOrder(Shared& s, const float* logits, int n, float max, float temperature)
        : s_{s}, logits_{logits}, n_{n}, max_{max}, temperature_{temperature} {}

    __device__ Mass mass_of(float x) const {
        return static_cast<Mass>(static_cast<double>(expf((x - max_) / temperature_)) * kOne);
    }

    /// Counts and masses of the keys with key >> parent_shift == parent, by (key >> shift) % 2048;
    /// parent_shift 32: of every key.
    __device__ void fill(unsigned parent, int parent_shift, int shift, unsigned mask) {
        for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) {
            s_.mass[bin] = 0;
            s_.count[bin] = 0;
        }
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < n_; i += kThreads) {
            const float x = logits_[i];
            const unsigned key = order_key(x);
            if (key == 0 || (parent_shift < 32 && key >> parent_shift != parent)) continue;
            const unsigned bin = key >> shift & mask;
            atomicAdd(&s_.count[bin], 1);
            const Mass mass = mass_of(x);
            if (mass != 0) atomicAdd(&s_.mass[bin], mass);
        }
        __syncthreads();
    }

    /// Sets s.bin to the bin, from the highest down, in which the target is reached, or else the last
    /// that is not empty, and s.before to what lies above it. @return all bins and `above` together
    __device__ Prefix descend(const Target& target, Prefix above) {
        const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
        // Thread 0 has the highest bins.
        const int top = kBins - 1 - thread * kBinsPerThread;
        Prefix own{0, 0};
        for (int j = 0; j < kBinsPerThread; ++j)
            own = AddPrefix{}(own, Prefix{s_.mass[top - j], s_.count[top - j]});
        Prefix up_to = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const Prefix other{__shfl_up_sync(0xffffffffu, up_to.mass, step),
                               __shfl_up_sync(0xffffffffu, up_to.count, step)};
            if (lane >= step) up_to = AddPrefix{}(up_to, other);
        }
        if (lane == 31) s_.warp[thread / 32] = up_to;
        if (thread == 0) s_.bin = -1;
        __syncthreads();
        Prefix before = above, all = above;
        for (int w = 0; w < kThreads / 32; ++w) {
            if (w < thread / 32) before = AddPrefix{}(before, s_.warp[w]);
            all = AddPrefix{}(all, s_.warp[w]);
        }
        before = AddPrefix{}(before, Prefix{up_to.mass - own.mass, up_to.count - own.count});
        // The highest bin that reaches the target; failing that, the lowest that is not empty.
        int chosen = -1, last = kBins;
        Prefix chosen_before{}, last_before{}, at = before;
        for (int j = 0; j < kBinsPerThread; ++j) {
            const int bin = top - j;
            if (s_.count[bin] == 0) continue;
            const Prefix with = AddPrefix{}(at, Prefix{s_.mass[bin], s_.count[bin]});
            last = bin;
            last_before = at;
            if (chosen < 0 && target.is_reached(with)) {
                chosen = bin;
                chosen_before = at;
            }
            at = with;
        }
        const int best = block_reduce(chosen, s_.ints, Max{});
        const int lowest = -block_reduce(-last, s_.ints, Max{});
        if (best >= 0 ? chosen == best : last == lowest && lowest < kBins) {
            s_.bin = best >= 0 ? best : lowest;
            s_.before = best >= 0 ? chosen_before : last_before;
        }
        __syncthreads();
        return all;
    }

    /// The end of the shortest prefix that reaches the target; of the whole row when none does.
    __device__ Position locate(const Target& target) {
        fill(0, 32, 21, 2047u);
        descend(target, Prefix{0, 0});
        unsigned key = static_cast<unsigned>(s_.bin);
        Prefix before = s_.before;
        fill(key, 21, 10, 2047u);
        descend(target, before);
        key = key << 11 | static_cast<unsigned>(s_.bin);
        before = s_.before;
        fill(key, 10, 0, 1023u);
        descend(target, before);
        const int last = s_.bin;
        before = s_.before;
        key = key << 10 | static_cast<unsigned>(last);
        const int ties = s_.count[last];
        const Mass each = s_.mass[last] / static_cast<Mass>(ties);
        int low = 0, high = ties - 1;
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (target.is_reached({before.mass + static_cast<Mass>(middle + 1) * each, before.count + middle + 1}))
                high = middle;
            else
                low = middle + 1;
        }
        __syncthreads();
        return {{before.mass + static_cast<Mass>(low + 1) * each, before.count + low + 1}, key, low};
    }

    /// All candidates.
    __device__ Prefix all() {
        fill(0, 32, 21, 2047u);
        const Prefix whole = descend({Target::count_at_least, 1}, Prefix{0, 0});
        __syncthreads();
        return whole;
    }

    /// Candidates whose mass is at least `floor` of the best one's.
    __device__ Prefix at_least(float floor) {
        Prefix kept{0, 0};
        for (int i = static_cast<int>(threadIdx.x); i < n_; i += kThreads) {
            const float x = logits_[i];
            if (order_key(x) == 0 || !(expf((x - max_) / temperature_) >= floor)) continue;
            kept = AddPrefix{}(kept, Prefix{mass_of(x), 1});
        }
        const int count = block_reduce(kept.count, s_.ints, Sum{});
        __syncthreads();
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const Mass mass = warp_reduce(kept.mass, Sum{});
        if (lane == 0) s_.warp[threadIdx.x / 32].mass = mass;
        __syncthreads();
        Mass sum = 0;
        for (int w = 0; w < kThreads / 32; ++w) sum += s_.warp[w].mass;
        __syncthreads();
        return {sum, count};
    }

    /// The id of the tie-th candidate with this key, in the order of ids.
    __device__ int id_of(const Position& p) {
        const int thread = static_cast<int>(threadIdx.x);
        // A run of ids a thread, so that the count before it is a prefix sum over threads.
        const int run = (n_ + kThreads - 1) / kThreads, begin = min(n_, thread * run);
        const int end = min(n_, begin + run);
        int own = 0;
        for (int i = begin; i < end; ++i) own += order_key(logits_[i]) == p.key;
        s_.count[thread] = own;
        __syncthreads();
        int before = 0;
        for (int t = 0; own > 0 && t < thread; ++t) before += s_.count[t];
        if (own > 0 && before <= p.tie && p.tie < before + own)
            for (int i = begin, seen = before; i < end; ++i)
                if (order_key(logits_[i]) == p.key && seen++ == p.tie) s_.id = i;
        __syncthreads();
        return s_.id;
    }

private:
    Shared& s_;
    const float* logits_;
    int n_;
    float max_, temperature_;
};

__device__ int draw(Shared& s, const float* logits, int n, const assay_sample_row& row, float max) {
    RowOrder order{s, logits, n, max, row.temperature};
    Prefix kept = order.all();
    if (row.top_k > 0 && row.top_k < kept.count)
        kept = order.locate({Target::count_at_least, static_cast<double>(row.top_k)}).prefix;
    if (row.top_p < 1) {
        const double target = static_cast<double>(row.top_p) * static_cast<double>(kept.mass);
        const Prefix cut = order.locate({Target::mass_at_least, target}).prefix;
        if (cut.count < kept.count) kept = cut;
    }
    if (row.min_p > 0) {
        Prefix cut = order.at_least(row.min_p);
        if (cut.count == 0) cut = {static_cast<Mass>(kOne), 1};
        if (cut.count < kept.count) kept = cut;
    }
    const double target = static_cast<double>(row.uniform) * static_cast<double>(kept.mass);
    Position chosen = order.locate({Target::mass_above, target});
    if (chosen.prefix.count > kept.count)
        chosen = order.locate({Target::count_at_least, static_cast<double>(kept.count)});
    return order.id_of(chosen);
}

__global__ void __launch_bounds__(kThreads)
    sample_kernel(KernelRows<const float> logits, int n, const assay_sample_row* params,
                  std::int32_t* token) {
    __shared__ Shared s;
    static_assert(sizeof(Shared) <= (48 << 10), "static shared memory");
    wait_for_inputs();
    let_next_start();
    const float* row = logits[blockIdx.x];
    float max = -INFINITY;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
        const float x = row[i];
        if (isfinite(x) && x > max) max = x;
    }
    max = block_reduce(max, s.floats, Max{});
    const assay_sample_row rule = params[blockIdx.x];
    int id = -1;
    if (max > -INFINITY) {
        if (rule.temperature > 0) {
            id = draw(s, row, n, rule, max);
        } else {
            int first = n;
            for (int i = static_cast<int>(threadIdx.x); i < n && first == n; i += kThreads)
                if (row[i] == max) first = i;
            id = -block_reduce(-first, s.ints, Max{});
        }
    }
    if (threadIdx.x == 0) token[blockIdx.x] = id;
}

}  // namespace

assay_status sample(void*, const assay_tensor* logits, const assay_sample_row* params,
                    std::int32_t* token, const assay_stream* s) {
    if (!is_f32_rows(logits, 2)) return ASSAY_INVALID;
    const std::int64_t rows = logits->shape[0];
    if (rows == 0) return ASSAY_OK;
    if (params == nullptr || token == nullptr) return ASSAY_INVALID;
    return run(sample_kernel, dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0, s,
               kernel_rows<const float>(*logits), static_cast<int>(logits->shape[1]), params, token);
}

}  // namespace cuda
