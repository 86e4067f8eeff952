#pragma once

// Warpgroup instructions of compute capability 9.0 (target sm_90a) and the barriers of shared memory
// that go with them. 128 threads (four warps, the first a multiple of four) issue each together.

#include "mma.cuh"

namespace attention::gpu {

/// wgmma.fence: registers and shared memory written before are what the next wgmma reads.
__device__ inline void fence_wgmma() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void commit_wgmma() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most N groups are under way; accumulators of the others may be read.
template <int N>
__device__ inline void wait_wgmma() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/// Keeps the compiler from moving uses of accumulators across a wait.
template <int N>
__device__ inline void pin(float (&c)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
/// fence.proxy.async: ordinary writes to shared memory become visible to wgmma.
__device__ inline void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
template <int N>
__device__ inline void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ inline void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
/// bar.sync of `threads` threads.
__device__ inline void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// mbarrier: a counter of arrivals that changes phase when all of `count` have come.
__device__ inline void init_barrier(std::uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void arrive(std::uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Whether the phase of this parity is over.
__device__ inline bool is_over(std::uint32_t barrier, int parity) {
    int over;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}\n"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
    return over != 0;
}
__device__ inline void wait_barrier(std::uint32_t barrier, int parity) {
    while (!is_over(barrier, parity)) {
    }
}

/// Of a thread that also announces `bytes` of bulk copies, which complete the phase with the arrivals.
__device__ inline void arrive_expecting(std::uint32_t barrier, std::uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// cp.async.bulk.tensor: a box of a two-dimensional tensor map to shared memory; zeros beyond its
/// extent.
__device__ inline void copy_box(std::uint32_t to, const void* map, int column, int row, std::uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(map), "r"(column), "r"(row), "r"(barrier)
        : "memory");
}

/// Byte offset of 16-byte piece `chunk` of a row, in blocks of 64 columns of `rows` rows: the layout
/// that descriptor() describes.
__device__ inline std::uint32_t place(int rows, int row, int chunk) {
    return static_cast<std::uint32_t>(((chunk / 8) * rows + row) * 128 + ((chunk ^ row) & 7) * 16);
}

/// Matrix descriptor of shared memory in rows of 128 bytes whose 16-byte pieces change places with
/// the row (128-byte swizzle); groups of eight rows lie 1024 bytes apart. Addresses are multiples of
/// 1024 up to the step along a row.
/// @param next  bytes between blocks of 64 columns; of the transposed operand only
__device__ inline std::uint64_t descriptor(std::uint32_t address, std::uint32_t next = 16) {
    return static_cast<std::uint64_t>((address & 0x3ffff) >> 4) | static_cast<std::uint64_t>(next >> 4) << 16 |
           std::uint64_t{1024 >> 4} << 32 | std::uint64_t{1} << 62;
}

// clang-format off
#define ASSAY_WGMMA_N128_SS(type)                                                     \
    asm volatile(                                                              \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"        \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63" \
        "}, %64, %65, p, 1, 1, 0, 0;\n}\n"                                              \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), \
          "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), \
          "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), \
          "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), \
          "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
          "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), \
          "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), \
          "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), \
          "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), \
          "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), \
          "+f"(c[62]), "+f"(c[63]) \
        : "l"(a), "l"(b), "r"(static_cast<int>(adds)))

#define ASSAY_WGMMA_N128_RS(type)                                                     \
    asm volatile(                                                              \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"        \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63" \
        "}, {%64,%65,%66,%67}, %68, p, 1, 1, 1;\n}\n"                                              \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), \
          "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), \
          "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), \
          "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), \
          "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
          "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), \
          "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), \
          "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), \
          "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), \
          "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), \
          "+f"(c[62]), "+f"(c[63]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)))

#define ASSAY_WGMMA_N64_RS(type)                                                     \
    asm volatile(                                                              \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"        \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31" \
        "}, {%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}\n"                                              \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), \
          "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), \
          "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), \
          "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), \
          "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)))
#define ASSAY_WGMMA_N32_SS(type)                                                     \
    asm volatile(                                                              \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {"        \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15" \
        "}, %16, %17, p, 1, 1, 0, 0;\n}\n"                                              \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), \
          "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), \
          "+f"(c[14]), "+f"(c[15]) \
        : "l"(a), "l"(b), "r"(static_cast<int>(adds)))

#define ASSAY_WGMMA_N256_SS(type)                                                     \
    asm volatile(                                                              \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                           \
        "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {"        \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95," \
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127" \
        "}, %128, %129, p, 1, 1, 0, 1;\n}\n"                                              \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), \
          "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), \
          "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), \
          "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), \
          "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
          "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), \
          "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), \
          "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), \
          "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), \
          "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), \
          "+f"(c[62]), "+f"(c[63]), "+f"(c[64]), "+f"(c[65]), "+f"(c[66]), "+f"(c[67]), \
          "+f"(c[68]), "+f"(c[69]), "+f"(c[70]), "+f"(c[71]), "+f"(c[72]), "+f"(c[73]), \
          "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]), "+f"(c[78]), "+f"(c[79]), \
          "+f"(c[80]), "+f"(c[81]), "+f"(c[82]), "+f"(c[83]), "+f"(c[84]), "+f"(c[85]), \
          "+f"(c[86]), "+f"(c[87]), "+f"(c[88]), "+f"(c[89]), "+f"(c[90]), "+f"(c[91]), \
          "+f"(c[92]), "+f"(c[93]), "+f"(c[94]), "+f"(c[95]), "+f"(c[96]), "+f"(c[97]), \
          "+f"(c[98]), "+f"(c[99]), "+f"(c[100]), "+f"(c[101]), "+f"(c[102]), "+f"(c[103]), \
          "+f"(c[104]), "+f"(c[105]), "+f"(c[106]), "+f"(c[107]), "+f"(c[108]), "+f"(c[109]), \
          "+f"(c[110]), "+f"(c[111]), "+f"(c[112]), "+f"(c[113]), "+f"(c[114]), "+f"(c[115]), \
          "+f"(c[116]), "+f"(c[117]), "+f"(c[118]), "+f"(c[119]), "+f"(c[120]), "+f"(c[121]), \
          "+f"(c[122]), "+f"(c[123]), "+f"(c[124]), "+f"(c[125]), "+f"(c[126]), "+f"(c[127]) \
        : "l"(a), "l"(b), "r"(static_cast<int>(adds)))
// clang-format on

/// wgmma.m64n128k16, both operands in shared memory and contiguous along k: c = a b, or c += a b.
template <class T>
__device__ inline void multiply_shared(float (&c)[64], std::uint64_t a, std::uint64_t b, bool adds) {
    if constexpr (__is_same(T, __half))
        ASSAY_WGMMA_N128_SS("f16");
    else
        ASSAY_WGMMA_N128_SS("bf16");
}
/// wgmma.m64nNk16, N = 2 x accumulators: a in registers (as of mma.m16n8k16, per warp), b in shared
/// memory, contiguous along n.
template <class T>
__device__ inline void multiply_registers(float (&c)[64], const std::uint32_t* a, std::uint64_t b, bool adds) {
    if constexpr (__is_same(T, __half))
        ASSAY_WGMMA_N128_RS("f16");
    else
        ASSAY_WGMMA_N128_RS("bf16");
}
template <class T>
__device__ inline void multiply_registers(float (&c)[32], const std::uint32_t* a, std::uint64_t b, bool adds) {
    if constexpr (__is_same(T, __half))
        ASSAY_WGMMA_N64_RS("f16");
    else
        ASSAY_WGMMA_N64_RS("bf16");
}

/// wgmma.m64n32k16, both operands in shared memory and contiguous along k.
template <class T>
__device__ inline void multiply_shared(float (&c)[16], std::uint64_t a, std::uint64_t b, bool adds) {
    if constexpr (__is_same(T, __half))
        ASSAY_WGMMA_N32_SS("f16");
    else
        ASSAY_WGMMA_N32_SS("bf16");
}
/// wgmma.m64n256k16: a contiguous along k, b contiguous along n.
template <class T>
__device__ inline void multiply_shared_transposed(float (&c)[128], std::uint64_t a, std::uint64_t b, bool adds) {
    if constexpr (__is_same(T, __half))
        ASSAY_WGMMA_N256_SS("f16");
    else
        ASSAY_WGMMA_N256_SS("bf16");
}

#undef ASSAY_WGMMA_N32_SS
#undef ASSAY_WGMMA_N256_SS
#undef ASSAY_WGMMA_N128_SS
#undef ASSAY_WGMMA_N128_RS
#undef ASSAY_WGMMA_N64_RS

}  // namespace attention::gpu
