#include "cuda_device.hpp"

namespace device_test {
namespace {

using support::CudaMirror;
using enum CudaMirror::Access;

const assay_ops& real() {
    return *support::CudaDevice::table().ops;
}

/// An optional tensor over there.
struct Optional {
    Optional(CudaMirror& mirror, const assay_tensor* t, CudaMirror::Access access = read) {
        if (t == nullptr) return;
        view = mirror.view(*t, access);
        pointer = &view;
    }
    assay_tensor view{};
    const assay_tensor* pointer = nullptr;
};

/// `out` of an op that may be its input.
assay_tensor output(CudaMirror& mirror, const assay_tensor& x, const assay_tensor& x_there, const assay_tensor* out) {
    if (out->data != x.data || out->data == nullptr) return mirror.view(*out, write);
    assay_tensor same = *out;
    same.data = x_there.data;
    return same;
}

/// Calls f(mirror) and brings back what it wrote.
template <class F>
assay_status mirrored(F&& f) {
    CudaMirror mirror;
    const assay_status status = f(mirror);
    mirror.finish();
    return status;
}

std::uint64_t elements(const assay_tensor& t) {
    std::uint64_t n = 1;
    for (int d = 0; d < t.rank; ++d) n *= static_cast<std::uint64_t>(t.shape[d]);
    return n;
}

/// Ops of one input, one output, and something in between.
template <class Call>
assay_status map(const assay_tensor* x, const assay_tensor* out, Call&& call) {
    return mirrored([&](CudaMirror& m) {
        const bool in_place = x->data == out->data;
        const assay_tensor from = m.view(*x, in_place ? write : read), to = output(m, *x, from, out);
        return call(m, from, to);
    });
}

const assay_ops kMirrored = {
    .size = sizeof(assay_ops),
    .supports = [](void* self, int32_t op, int32_t dtype, assay_error* why) { return real().supports(self, op, dtype, why); },
    .copy = [](void* self, const assay_tensor* x, const assay_tensor* out, const assay_stream* s) {
        return map(x, out, [&](CudaMirror&, const assay_tensor& from, const assay_tensor& to) {
            return real().copy(self, &from, &to, s);
        });
    },
    .rmsnorm = [](void* self, const assay_tensor* x, const assay_tensor* residual, const assay_tensor* weight, float eps,
                  const assay_tensor* out, const assay_stream* s) {
        return map(x, out, [&](CudaMirror& m, const assay_tensor& from, const assay_tensor& to) {
            const Optional r{m, residual, write}, w{m, weight};
            return real().rmsnorm(self, &from, r.pointer, w.pointer, eps, &to, s);
        });
    },
    .layernorm = [](void* self, const assay_tensor* x, const assay_tensor* weight, const assay_tensor* bias, float eps,
                    const assay_tensor* out, const assay_stream* s) {
        return map(x, out, [&](CudaMirror& m, const assay_tensor& from, const assay_tensor& to) {
            const Optional w{m, weight}, b{m, bias};
            return real().layernorm(self, &from, w.pointer, b.pointer, eps, &to, s);
        });
    },
    .rope_table = [](void* self, const int32_t* pos, int64_t num_tokens, const double* inv_freq, int32_t half_dims,
                     float mscale, const assay_tensor* cos_sin, const assay_stream* s) {
        return mirrored([&](CudaMirror& m) {
            const assay_tensor table = m.view(*cos_sin, write);
            return real().rope_table(self, m.array(pos, static_cast<std::uint64_t>(num_tokens)), num_tokens,
                                     m.array(inv_freq, static_cast<std::uint64_t>(half_dims)), half_dims, mscale, &table, s);
        });
    },
    .rope = [](void* self, const assay_tensor* x, const assay_tensor* cos_sin, int32_t style, const assay_tensor* out,
               const assay_stream* s) {
        return map(x, out, [&](CudaMirror& m, const assay_tensor& from, const assay_tensor& to) {
            const assay_tensor table = m.view(*cos_sin);
            return real().rope(self, &from, &table, style, &to, s);
        });
    },
    .glu = [](void* self, int32_t kind, float alpha, float limit, const assay_tensor* gate, const assay_tensor* up,
              const assay_tensor* out, const assay_stream* s) {
        return map(gate, out, [&](CudaMirror& m, const assay_tensor& from, const assay_tensor& to) {
            const assay_tensor u = m.view(*up);
            return real().glu(self, kind, alpha, limit, &from, &u, &to, s);
        });
    },
    .add = [](void* self, const assay_tensor* a, const assay_tensor* b, float scale, const assay_tensor* out,
              const assay_stream* s) {
        return map(a, out, [&](CudaMirror& m, const assay_tensor& from, const assay_tensor& to) {
            const assay_tensor other = m.view(*b);
            return real().add(self, &from, &other, scale, &to, s);
        });
    },
    .scale = [](void* self, const assay_tensor* x, float factor, const assay_tensor* out, const assay_stream* s) {
        return map(x, out, [&](CudaMirror&, const assay_tensor& from, const assay_tensor& to) {
            return real().scale(self, &from, factor, &to, s);
        });
    },
    .add_bias = [](void* self, const assay_tensor* x, const assay_tensor* bias, const int32_t* offset, const assay_stream* s) {
        return mirrored([&](CudaMirror& m) {
            const assay_tensor to = m.view(*x, write), b = m.view(*bias);
            return real().add_bias(self, &to, &b, m.array(offset, static_cast<std::uint64_t>(bias->shape[0]) + 1), s);
        });
    },
    .hadamard = [](void* self, const assay_tensor* x, const assay_tensor* out, const assay_stream* s) {
        return map(x, out, [&](CudaMirror&, const assay_tensor& from, const assay_tensor& to) {
            return real().hadamard(self, &from, &to, s);
        });
    },
    .softcap = [](void* self, const assay_tensor* x, float cap, const assay_tensor* out, const assay_stream* s) {
        return map(x, out, [&](CudaMirror&, const assay_tensor& from, const assay_tensor& to) {
            return real().softcap(self, &from, cap, &to, s);
        });
    },
    .router = [](void* self, const assay_router* r, const assay_tensor* logits, const assay_tensor* bias,
                 const assay_tensor* ids, const assay_tensor* weights, const assay_stream* s) {
        return mirrored([&](CudaMirror& m) {
            const assay_tensor l = m.view(*logits), i = m.view(*ids, write), w = m.view(*weights, write);
            const Optional b{m, bias};
            return real().router(self, r, &l, b.pointer, &i, &w, s);
        });
    },
    .expert_sort = [](void* self, const assay_tensor* ids, int32_t num_experts, int32_t* slot_of, int32_t* row_ids,
                      int32_t* offset, const assay_stream* s) {
        return mirrored([&](CudaMirror& m) {
            const assay_tensor i = m.view(*ids);
            const std::uint64_t pairs = elements(*ids);
            return real().expert_sort(self, &i, num_experts, m.array(slot_of, pairs, write), m.array(row_ids, pairs, write),
                                      m.array(offset, static_cast<std::uint64_t>(num_experts) + 1, write), s);
        });
    },
    .expert_combine = [](void* self, const assay_tensor* y, const int32_t* slot_of, const assay_tensor* weights,
                         bool accumulate, const assay_tensor* out, const assay_stream* s) {
        return mirrored([&](CudaMirror& m) {
            const assay_tensor from = m.view(*y), w = m.view(*weights), to = m.view(*out, write);
            return real().expert_combine(self, &from, m.array(slot_of, elements(*weights)), &w, accumulate, &to, s);
        });
    },
    .gather_rows = [](void* self, const assay_tensor* x, const int32_t* rows, const assay_tensor* out, const assay_stream* s) {
        return mirrored([&](CudaMirror& m) {
            const assay_tensor from = m.view(*x), to = m.view(*out, write);
            return real().gather_rows(self, &from, m.array(rows, static_cast<std::uint64_t>(out->shape[0])), &to, s);
        });
    },
    .logits_edit = [](void* self, const assay_tensor* logits, const assay_logit_edit* edits, int64_t n, const assay_stream* s) {
        return mirrored([&](CudaMirror& m) {
            const assay_tensor to = m.view(*logits, write);
            return real().logits_edit(self, &to, m.array(edits, static_cast<std::uint64_t>(n)), n, s);
        });
    },
    .logits_mask = [](void* self, const assay_tensor* logits, const uint32_t* bits, int64_t words, const int32_t* mask_row,
                      const assay_stream* s) {
        return mirrored([&](CudaMirror& m) {
            const assay_tensor to = m.view(*logits, write);
            std::int32_t masks = 0;
            for (std::int64_t r = 0; r < logits->shape[0]; ++r) masks = std::max(masks, mask_row[r] + 1);
            return real().logits_mask(self, &to, m.array(bits, static_cast<std::uint64_t>(masks * words)), words,
                                      m.array(mask_row, static_cast<std::uint64_t>(logits->shape[0])), s);
        });
    },
    .logprobs = [](void* self, const assay_tensor* logits, const int32_t* tokens, float* logprob, int32_t num_top,
                   int32_t* top_ids, float* top_logprobs, const assay_stream* s) {
        return mirrored([&](CudaMirror& m) {
            const assay_tensor l = m.view(*logits);
            const auto rows = static_cast<std::uint64_t>(logits->shape[0]), top = rows * static_cast<std::uint64_t>(num_top);
            return real().logprobs(self, &l, m.array(tokens, rows), m.array(logprob, rows, write), num_top,
                                   m.array(top_ids, top, write), m.array(top_logprobs, top, write), s);
        });
    },
    .sample = [](void* self, const assay_tensor* logits, const assay_sample_row* rows, int32_t* token, const assay_stream* s) {
        return mirrored([&](CudaMirror& m) {
            const assay_tensor l = m.view(*logits);
            const auto n = static_cast<std::uint64_t>(logits->shape[0]);
            return real().sample(self, &l, m.array(rows, n), m.array(token, n, write), s);
        });
    },
};

}  // namespace

const assay_ops& mirrored_ops() {
    return kMirrored;
}

}  // namespace device_test
