"""Model files that are wrong in one way. Each function changes a GgufFile; MUTATIONS lists them by name.

What is wrong with a file and what is wrong with the table of an architecture look alike from outside: metadata that
say another epsilon stand for a table that reads another one.
"""

import re
import struct

from gguf_file import ARRAY, BLOCK, BOOL, F16, F32, FLOAT32, Q4_K, Q5_0, STRING, tensor_bytes

LAYER = re.compile(r'blk\.(\d+)\.(.*)')


def float_of(file, suffix):
    return struct.unpack('<f', file.values[file.key(suffix)][1])[0]


def set_float(file, suffix, value):
    file.set(suffix, FLOAT32, value)


def set_int(file, suffix, value):
    file.set_int(file.key(suffix), value)


def head_dims(file):
    """Rows of a query head that are not rotated, and those that are."""
    rotated = file.get_int(file.key('rope.dimension_count'))
    name = 'attention.key_length_mla'
    if file.key(name) not in file.values:
        name = 'attention.key_length'
    return file.get_int(file.key(name)) - rotated, rotated


def rows_of(tensor):
    ne, kind, raw = tensor
    size = tensor_bytes(ne[:1], kind)
    return [raw[at:at + size] for at in range(0, len(raw), size)]


def exchange(file, one, other):
    file.tensors[one], file.tensors[other] = file.tensors[other], file.tensors[one]


def exchange_roles(file, one, other):
    """Of every layer that has both, with one shape."""
    for name in list(file.tensors):
        match = LAYER.fullmatch(name)
        if match and match[2] == one + '.weight':
            twin = 'blk.%s.%s.weight' % (match[1], other)
            if twin in file.tensors and file.tensors[twin][0] == file.tensors[name][0]:
                exchange(file, name, twin)


# ---- tensors ---------------------------------------------------------------------------------------


def tensor_missing(file):
    del file.tensors['blk.2.ffn_norm.weight']


def tensor_extra(file):
    file.tensors['blk.2.ffn_norm_2.weight'] = file.tensors['blk.2.ffn_norm.weight']


def tensor_renamed(file):
    file.tensors = {'blk.2.fnn_norm.weight' if name == 'blk.2.ffn_norm.weight' else name: tensor
                    for name, tensor in file.tensors.items()}


def tensor_shape(file):
    """Rows and columns exchanged: as many bytes, another matrix."""
    ne, kind, raw = file.tensors['blk.0.ffn_down.weight']
    file.tensors['blk.0.ffn_down.weight'] = ((ne[1], ne[0]) + ne[2:], kind, raw)


def tensor_zeroed(file):
    ne, kind, raw = file.tensors['blk.2.attn_output.weight']
    file.tensors['blk.2.attn_output.weight'] = (ne, kind, bytes(len(raw)))


def tensor_nan(file):
    ne, kind, raw = file.tensors['blk.2.ffn_gate_exps.weight']
    at = 40 * BLOCK[kind][1]
    assert kind == Q4_K
    file.tensors['blk.2.ffn_gate_exps.weight'] = (ne, kind, raw[:at] + b'\x01\x7e' + raw[at + 2:])


def tensor_scales_zero(file):
    """The scales of every block of one expert matrix; what is left is their minimum."""
    ne, kind, raw = file.tensors['blk.2.ffn_up_exps.weight']
    assert kind == Q4_K
    size = BLOCK[kind][1]
    blocks = [b'\0\0' + raw[at + 2:at + size] for at in range(0, len(raw), size)]
    file.tensors['blk.2.ffn_up_exps.weight'] = (ne, kind, b''.join(blocks))


def layers_exchanged(file):
    for name in list(file.tensors):
        if name.startswith('blk.2.'):
            other = 'blk.3.' + name[6:]
            assert file.tensors[name][0] == file.tensors[other][0], name
            exchange(file, name, other)


def permute_heads(file, name, keep, rotated):
    ne, kind, raw = file.tensors[name]
    rows, out = rows_of((ne, kind, raw)), []
    for head in range(0, len(rows), keep + rotated):
        out += rows[head:head + keep]
        turned = rows[head + keep:head + keep + rotated]
        out += turned[0::2] + turned[1::2]
    file.tensors[name] = (ne, kind, b''.join(out))


def q_permuted(file):
    """Query rows in the order of half-split RoPE."""
    keep, rotated = head_dims(file)
    for name in list(file.tensors):
        if name.endswith(('attn_q_b.weight', 'attn_q.weight')) and 'indexer' not in name:
            permute_heads(file, name, keep, rotated)


def qk_permuted(file):
    """Queries and keys in the checkpoint's order, not in the order of the architecture's RoPE."""
    q_permuted(file)
    for name in list(file.tensors):
        if name.endswith('attn_k.weight') and 'indexer' not in name:
            permute_heads(file, name, *head_dims(file))


def decode_q5_0(raw):
    out = []
    for at in range(0, len(raw), BLOCK[Q5_0][1]):
        scale, high = struct.unpack_from('<eI', raw, at)
        low = raw[at + 6:at + 22]
        for i in range(32):
            nibble = low[i] & 15 if i < 16 else low[i - 16] >> 4
            out.append(scale * (nibble + 16 * (high >> i & 1) - 16))
    return out


def kv_b_untransposed(file):
    """attn_k_b as kv_b holds it, under the shape of its transpose."""
    for name in list(file.tensors):
        if not name.endswith('attn_k_b.weight'):
            continue
        (cols, rows, heads), kind, raw = file.tensors[name]
        assert kind == Q5_0
        values = decode_q5_0(raw)
        out = []
        for head in range(heads):
            matrix = values[head * rows * cols:(head + 1) * rows * cols]
            out += [matrix[row * cols + col] for col in range(cols) for row in range(rows)]
        file.tensors[name] = ((cols, rows, heads), F16, struct.pack('<%de' % len(out), *out))


def gate_up_swapped(file):
    for gate, up in (('ffn_gate', 'ffn_up'), ('ffn_gate_exps', 'ffn_up_exps'), ('ffn_gate_shexp', 'ffn_up_shexp')):
        exchange_roles(file, gate, up)


def norms_swapped(file):
    exchange_roles(file, 'attn_norm', 'ffn_norm')


def latent_norms_swapped(file):
    exchange_roles(file, 'attn_q_a_norm', 'attn_kv_a_norm')


def ends_swapped(file):
    exchange(file, 'token_embd.weight', 'output.weight')


def embedding_shifted(file):
    ne, kind, raw = file.tensors['token_embd.weight']
    row = tensor_bytes(ne[:1], kind)
    file.tensors['token_embd.weight'] = (ne, kind, raw[row:] + raw[:row])


def experts_exchanged(file):
    """Experts 0 and 1 of one layer, in one of their three matrices."""
    ne, kind, raw = file.tensors['blk.2.ffn_down_exps.weight']
    size = len(raw) // ne[2]
    file.tensors['blk.2.ffn_down_exps.weight'] = (ne, kind, raw[size:2 * size] + raw[:size] + raw[2 * size:])


# ---- tokenizer --------------------------------------------------------------------------------------


def pre_missing(file):
    del file.values['tokenizer.ggml.pre']


def pre_unknown(file):
    file.values['tokenizer.ggml.pre'] = (STRING, struct.pack('<Q', 3) + b'xyz')


def bos_added(file):
    file.values['tokenizer.ggml.add_bos_token'] = (BOOL, b'\1')


def tokens_shifted(file):
    """The texts of the ordinary tokens, one place further."""
    kind, raw = file.values['tokenizer.ggml.tokens']
    assert kind == ARRAY
    item, count = struct.unpack_from('<IQ', raw)
    at, texts = 12, []
    for _ in range(count):
        (size,) = struct.unpack_from('<Q', raw, at)
        texts.append(raw[at:at + 8 + size])
        at += 8 + size
    ordinary = texts[256:2816]
    texts[256:2816] = ordinary[1:] + ordinary[:1]
    file.values['tokenizer.ggml.tokens'] = (ARRAY, struct.pack('<IQ', item, count) + b''.join(texts))


# ---- what the architecture's table reads -------------------------------------------------------------


def norm_epsilon(file):
    set_float(file, 'attention.layer_norm_rms_epsilon', 100 * float_of(file, 'attention.layer_norm_rms_epsilon'))


def gate_softmax(file):
    set_int(file, 'expert_gating_func', 1)


def routed_scale(file):
    set_float(file, 'expert_weights_scale', 1.0)


def routed_norm(file):
    file.set('expert_weights_norm', BOOL, False)


def fewer_experts(file):
    set_int(file, 'expert_used_count', 1)


def rope_base(file):
    set_float(file, 'rope.freq_base', 100 * float_of(file, 'rope.freq_base'))


def index_topk(file):
    set_int(file, 'attention.indexer.top_k', 16)


def rename_architecture(file, name):
    old = file.values['general.architecture'][1][8:].decode()
    file.values = {name + key[len(old):] if key.startswith(old + '.') else key: value
                   for key, value in file.values.items()}
    file.values['general.architecture'] = (STRING, struct.pack('<Q', len(name)) + name.encode())


def index_rope_style(file):
    """DeepSeek's table differs from GLM's in the RoPE style of the indexer alone."""
    rename_architecture(file, 'deepseek32')
    file.values.pop(file.key('attention.indexer.types'), None)


def rope_style(file):
    """qwen2 turns halves where llama turns neighbours; it has biases, which are 0 here."""
    rename_architecture(file, 'qwen2')
    for name in list(file.tensors):
        if name.endswith(('attn_q.weight', 'attn_k.weight', 'attn_v.weight')):
            rows = file.tensors[name][0][1]
            file.tensors[name[:-6] + 'bias'] = ((rows,), F32, bytes(4 * rows))


def window_longer(file):
    set_int(file, 'attention.sliding_window', 4 * file.get_int(file.key('attention.sliding_window')))


# ---- healthy variants, for ops that no reference model has -------------------------------------------


def with_softcap(file):
    set_float(file, 'attn_logit_softcapping', 2.0)


def with_loud_experts(file):
    """Inputs of the experts that reach the limit of their gate."""
    for name in list(file.tensors):
        if name.endswith('post_attention_norm.weight'):
            ne, kind, raw = file.tensors[name]
            values = struct.unpack('<%df' % ne[0], raw)
            file.tensors[name] = (ne, kind, struct.pack('<%df' % ne[0], *(40 * v for v in values)))


MUTATIONS = {function.__name__.replace('_', '-'): function for function in (
    tensor_missing, tensor_extra, tensor_renamed, tensor_shape, tensor_zeroed, tensor_nan, tensor_scales_zero,
    layers_exchanged, q_permuted, qk_permuted, kv_b_untransposed, gate_up_swapped, norms_swapped, latent_norms_swapped,
    ends_swapped, embedding_shifted, experts_exchanged, pre_missing, pre_unknown, bos_added, tokens_shifted,
    norm_epsilon, gate_softmax, routed_scale, routed_norm, fewer_experts, rope_base, index_topk, index_rope_style,
    rope_style, window_longer, with_softcap, with_loud_experts)}
