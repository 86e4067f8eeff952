// The exact index_topk largest scores of a token: a radix select over order-preserving integers, 8
// bits a pass, then one pass in order of position that takes all above the threshold and the first
// at it: of equal scores the lower position wins. NaN ranks above every number, so that a broken
// key shows. Five passes over scores that lie in L2; one block of threads a token.

#include "../cuda-common/rows.cuh"
#include "mla.hpp"

namespace attention::gpu {
namespace {

constexpr int kThreads = 512;

/// An unsigned number that orders as the score does: NaN above all, -0 as +0.
__device__ std::uint32_t rank_of(float score) {
    if (isnan(score)) return 0xffffffffu;
    const std::uint32_t bits = __float_as_uint(score + 0.0F);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Exclusive sums over the block of two flags packed into one count each (16 bits), and the totals.
__device__ std::uint32_t scan(std::uint32_t value, std::uint32_t* scratch, std::uint32_t* total) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    std::uint32_t sum = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const std::uint32_t left = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += left;
    }
    __syncthreads();
    if (lane == 31) scratch[warp] = sum;
    __syncthreads();
    std::uint32_t before = 0, all = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
        before += w < warp ? scratch[w] : 0;
        all += scratch[w];
    }
    *total = all;
    return before + sum - value;
}

__global__ void __launch_bounds__(kThreads) topk(const IndexParams p) {
    __shared__ std::uint32_t histogram[256];
    __shared__ std::uint32_t scratch[kThreads / 32];
    __shared__ std::uint32_t found[2];  // digit, how many lie above it
    cuda::wait_for_inputs();
    const int thread = static_cast<int>(threadIdx.x);
    const int token = p.batch.cu_q[0] + p.first_token + static_cast<int>(blockIdx.x);
    const int seq = owner(p.batch.cu_q, p.batch.num_seqs, token);
    if (seq >= p.batch.num_seqs) return;
    const int visible = p.batch.kv_len[seq] - p.batch.cu_q[seq + 1] + token + 1;
    const std::int32_t* blocks = p.batch.block_table + std::int64_t{seq} * p.batch.max_blocks;
    std::int32_t* out = p.topk_slots + token * p.topk_stride;
    if (visible <= p.topk) {
        for (int k = thread; k < p.topk; k += kThreads)
            out[k] = k < visible ? static_cast<std::int32_t>(slot_of(p.batch, blocks, k)) : -1;
        return;
    }
    const float* scores = p.scores + blockIdx.x * p.score_stride;

    std::uint32_t threshold = 0, wanted = static_cast<std::uint32_t>(p.topk);
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = thread; i < 256; i += kThreads) histogram[i] = 0;
        __syncthreads();
        for (int k = thread; k < visible; k += kThreads) {
            const std::uint32_t r = rank_of(scores[k]);
            if (shift == 24 || r >> (shift + 8) == threshold >> (shift + 8))
                atomicAdd(&histogram[r >> shift & 255], 1u);
        }
        __syncthreads();
        // Thread 0 .. 255 hold digits from the largest down; the one at which the sum passes.
        const std::uint32_t mine = thread < 256 ? histogram[255 - thread] : 0;
        std::uint32_t total;
        const std::uint32_t above = scan(mine, scratch, &total);
        if (thread < 256 && above < wanted && above + mine >= wanted) {
            found[0] = static_cast<std::uint32_t>(255 - thread);
            found[1] = above;
        }
        __syncthreads();
        threshold |= found[0] << shift;
        wanted -= found[1];
        __syncthreads();
    }

    // `wanted` are left to take of those at the threshold. Above it: fewer than topk.
    std::uint32_t taken = 0, at_threshold = 0;
    for (int base = 0; base < visible; base += kThreads) {
        const int k = base + thread;
        const std::uint32_t r = k < visible ? rank_of(scores[k]) : 0;
        const std::uint32_t is_above = k < visible && r > threshold ? 1 : 0;
        const std::uint32_t is_at = k < visible && r == threshold ? 1 : 0;
        std::uint32_t total;
        const std::uint32_t before = scan(is_above | is_at << 16, scratch, &total);
        const std::uint32_t at_before = at_threshold + (before >> 16);
        const std::uint32_t place = taken + (before & 0xffff) + min(before >> 16, wanted - min(wanted, at_threshold));
        if (is_above != 0 || (is_at != 0 && at_before < wanted))
            out[place] = static_cast<std::int32_t>(slot_of(p.batch, blocks, k));
        const std::uint32_t at_taken = min(total >> 16, wanted - min(wanted, at_threshold));
        taken += (total & 0xffff) + at_taken;
        at_threshold += total >> 16;
        if (taken >= static_cast<std::uint32_t>(p.topk)) break;
    }
}

}  // namespace

cudaError_t launch_topk(const IndexParams& p, const assay_stream* s) {
    return cuda::launch(topk, dim3(static_cast<unsigned>(p.num_tokens)), dim3(kThreads), 0, s, true, p);
}

}  // namespace attention::gpu
