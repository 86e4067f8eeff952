#include "daemon/model/fused_tensors.hpp"

namespace model {
namespace {

struct Part {
    Role role = Role::count;
    Dim rows = Dim::none;
};

struct FusedTensor {
    Role fused;
    std::array<Part, 3> parts;
};

// clang-format off
constexpr FusedTensor kFusedTensors[] = {
    {Role::attn_qkv,              {{{Role::attn_q, Dim::q_rows}, {Role::attn_k, Dim::k_rows}, {Role::attn_v, Dim::v_rows}}}},
    {Role::attn_qkv_bias,         {{{Role::attn_q_bias, Dim::q_rows}, {Role::attn_k_bias, Dim::k_rows}, {Role::attn_v_bias, Dim::v_rows}}}},
    {Role::ffn_gate_up,           {{{Role::ffn_gate, Dim::ff}, {Role::ffn_up, Dim::ff}, {}}}},
    {Role::ffn_gate_up_exps,      {{{Role::ffn_gate_exps, Dim::ff_exp}, {Role::ffn_up_exps, Dim::ff_exp}, {}}}},
    {Role::ffn_gate_up_exps_bias, {{{Role::ffn_gate_exps_bias, Dim::ff_exp}, {Role::ffn_up_exps_bias, Dim::ff_exp}, {}}}},
};
// clang-format on

}  // namespace

std::optional<FusedRows> fused_rows(Role role, const Hparams& h) {
    for (const FusedTensor& tensor : kFusedTensors) {
        FusedRows rows{tensor.fused};
        bool found = false;
        for (const Part& part : tensor.parts) {
            if (part.rows == Dim::none) continue;
            if (part.role == role) {
                found = true;
                rows.first = rows.total;
            }
            rows.total += size_of(part.rows, h);
        }
        if (found) return rows;
    }
    return std::nullopt;
}

}  // namespace model
