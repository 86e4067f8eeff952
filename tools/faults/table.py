"""The faults, one row each: what is wrong, where it is tried, and what must come of it."""

import dataclasses

DEMO = 'demo'
RESOLVE, AUDIT, KERNELS, MODEL, COHERENCE, WATCH = 'resolve', 'audit', 'kernels', 'model', 'coherence', 'watch'
# Exit status of a refusal, by level.
STATUS = {RESOLVE: 78, AUDIT: 65, KERNELS: 70, MODEL: 70, COHERENCE: 70}
SUSPECTS = 'model file or (its )?architecture table'


@dataclasses.dataclass(frozen=True)
class Fault:
    id: str
    what: str
    level: str
    culprit: str            # regular expression that the diagnosis must match
    model: str = DEMO       # a case of tests/golden, or the demo model
    part: str = ''          # of the plugin "faulty": quant, attention, device
    fault: str = ''         # row of its table
    options: tuple = ()     # further options of it
    settings: tuple = ()    # further keys of the configuration
    edit: str = ''          # change of the model file (files.py)
    # '': the built-in probes judge. 'file': the calibration of the model before the change. 'table': that calibration as
    # if the file had not changed, which is what a wrong table of the daemon's own would meet.
    calibrated: str = ''
    fast: bool = False      # part of the test run
    reports: str = ''       # ids of public bug reports (REPORTS)


def attention(fault, what, culprit='faulty', level=KERNELS, **more):
    return Fault('attention.' + fault, what, level, culprit, part='attention', fault=fault, **more)


def quant(fault, what, culprit='faulty', level=KERNELS, id='', **more):
    return Fault('quant.' + (id or fault), what, level, culprit, part='quant', fault=fault, **more)


def device(fault, what, culprit='faulty', level=KERNELS, **more):
    return Fault('device.' + fault, what, level, culprit, part='device', fault=fault, **more)


def file(edit, what, level, culprit, **more):
    return Fault('file.' + edit, what, level, culprit, edit=edit, **more)


def content(edit, what, tensor, **more):
    """Wrong content: without a calibration nobody can name it, with one the tensor is named."""
    return [Fault('file.' + edit, what, COHERENCE, SUSPECTS, edit=edit, **more),
            Fault('file.' + edit + '+calibration', what, COHERENCE, tensor, edit=edit, calibrated='file', **more)]


def calibrated(edit, what, tensor, **more):
    """Wrong content with which the model goes on talking well: only a calibration can tell."""
    return content(edit, what, tensor, **more)[1]


def table(edit, what, calibrated='table', **more):
    """What an architecture's table would read wrong, the file being right."""
    return Fault('table.' + edit, what, COHERENCE, SUSPECTS, edit=edit, calibrated=calibrated, **more)


def named(*words):
    """All of them, in any order."""
    return ''.join('(?=.*%s)' % word for word in words)


GQA = 'llama-gqa'
BACKEND = 'backends.attention.'
HASTY = (('assay.timeout_ms', 2000),)

FAULTS = [
    # ---- resolve: what is absent, or says that it cannot
    Fault('absent.attention', 'the attention plugin that is configured is not there', RESOLVE, 'attention.*flash-attn-9',
          settings=((BACKEND + 'prefill', 'flash-attn-9'), (BACKEND + 'decode', 'flash-attn-9')), fast=True, reports='A1 B3 B6'),
    Fault('absent.prefill', 'the attention plugin has decode and no prefill', RESOLVE, 'prefill.*no-prefill.*no prefill kernel',
          settings=((BACKEND + 'prefill', 'no-prefill'), (BACKEND + 'decode', 'no-prefill')), fast=True, reports='A1 B4 B13'),
    Fault('absent.device', 'the device that is configured is not there', RESOLVE, "device.*cuda",
          settings=(('backends.device', 'cuda'),), reports='B7 B9'),
    Fault('absent.quant', 'the quant plugin that is configured is not there', RESOLVE, 'quant.*cuda-dequant-9',
          settings=(('backends.quant', 'cuda-dequant-9'),)),
    quant('no-format', 'no kernel for one format of the model', named('q6_k', 'faulty'), RESOLVE, options=(('format', 'q6_k'),), reports='B4'),
    quant('no-grouped', 'no product for experts', 'faulty', RESOLVE),

    # ---- attention
    attention('silent', 'returns OK and writes nothing', named('attention.run', 'faulty'), fast=True, reports='A11'),
    attention('private-buffer', 'writes its result into memory of its own', named('attention.run', 'faulty'), fast=True, reports='A14'),
    attention('prefill-nothing', 'prefill returns OK and writes nothing', named('attention.run', 'faulty'), reports='A1'),
    attention('prefill-refused', 'declares prefill and refuses it when called', 'faulty.*forward_prefill', fast=True, reports='A1 B4'),
    attention('last-row', 'the last row is not written', named('attention.run', 'faulty')),
    attention('last-head', 'one head is not written', named('attention.run', 'faulty')),
    attention('zero-length', 'sequences behind an empty one are passed over', named('attention.run', 'faulty')),
    attention('past-end', 'writes behind the end', named('attention.run', 'faulty'), fast=True),
    attention('before-begin', 'writes before the begin', named('attention.run', 'faulty')),
    attention('scale', 'attention scale 5 % too large', named('attention.run', 'faulty'), fast=True, reports='A8'),
    attention('decode-scale', 'attention scale wrong in decode alone', named('attention.run', 'faulty')),
    attention('stale-prefill', 'the first decode after a prefill runs another kernel', named('attention.run', 'faulty'), reports='B12'),
    attention('mask-future', 'causal mask off by one: sees the next token', named('attention.run', 'faulty'), model=GQA, fast=True),
    attention('mask-self', 'causal mask off by one: does not see itself', named('attention.run', 'faulty'), model=GQA),
    attention('second-page', 'wrong only past a page boundary', named('attention.run', 'faulty'), model=GQA),
    attention('ragged', 'sequences behind the first read its pages', named('attention.run', 'faulty'), model=GQA),
    attention('past-topk', 'wrong only beyond index_topk', named('attention.run', 'faulty'), reports='E1'),
    attention('topk-loses-one', 'top-k loses one index', named('attention.index', 'faulty'), fast=True, reports='E1'),
    attention('topk-first', 'beyond index_topk the first positions, not the best', named('attention.index', 'faulty'), reports='E1'),
    attention('index-unweighted', 'index heads weigh alike', named('attention.index', 'faulty'), reports='E3'),
    attention('window-ignored', 'sliding window ignored', named('attention.run', 'faulty'), model='gemma3', fast=True, reports='D6'),
    attention('window-off-by-one', 'sliding window one longer', named('attention.run', 'faulty'), model='gpt-oss', reports='D6'),
    attention('sinks-ignored', 'sinks ignored', named('attention.run', 'faulty'), model='gpt-oss', reports='D6'),
    attention('softcap-ignored', 'scores not capped', named('attention.run', 'faulty'), model='gemma3-softcap', reports='D6'),
    attention('head-dim-short', 'one element of each head left out', named('attention.run', 'faulty'), model=GQA, reports='A2'),
    attention('coarse-keys', 'keys stored with fewer bits than the layout says', named('attention.append', 'faulty'), reports='A6 A7'),
    attention('last-token', 'the last token of a chunk is not stored', named('attention.append', 'faulty')),
    attention('race', 'other bits every second time', 'faulty'),
    attention('drift', 'drift after 100 steps', 'faulty', MODEL, reports='A4'),
    attention('nan', 'NaN', named('attention.run', 'faulty'), reports='A7'),
    attention('status', 'returns an error', named('attention.run', 'faulty', 'could not be launched'), reports='A11'),
    attention('hang', 'does not return', named('attention.run', 'faulty'), settings=HASTY),

    # ---- quant
    quant('silent', 'returns OK and writes nothing', fast=True, reports='A11'),
    quant('private-buffer', 'writes its result into memory of its own', reports='A14'),
    quant('last-row', 'the last row is not written'),
    quant('past-end', 'writes behind the end'),
    quant('batch-9', 'matmul wrong for nine rows and more', fast=True),
    quant('odd-rows', 'wrong for an odd number of rows'),
    quant('k-tail', 'the last 32 inputs ignored'),
    quant('experts-swapped', 'grouped or per-head matmul with two experts exchanged', named('_exps|attn_[kv]_b', 'faulty'), fast=True),
    quant('transposed', 'per-head matmul transposed', named('attn_[kv]_b', 'faulty'), reports='E7'),
    quant('gate-up-swapped', 'gate and up of the fused product exchanged', named('ffn_gate', 'faulty')),
    quant('fused-order', 'outputs of a fused product in another order', named('attn_qkv', 'faulty'), model=GQA),
    quant('residual-lost', 'overwrites where it should add'),
    quant('bias-ignored', 'biases left out', model='qwen2-bias'),
    quant('coarse-inputs', '8-bit inputs where f32 was asked for'),
    quant('clamp-ignored', 'the gate is not limited', model='gpt-oss-loud'),
    quant('silu-for-gelu', 'SiLU in place of GELU', model='gemma3'),
    quant('high-bits', "one format's high bits read as 0", named('q6_k', 'faulty'), options=(('format', 'q6_k'),), fast=True, reports='D1 D7'),
    quant('scale-min', 'scale and minimum exchanged', named('q4_k', 'faulty'), options=(('format', 'q4_k'),), reports='D1'),
    quant('next-row', 'embedding of the next token', named('token_embd', 'faulty')),
    quant('race', 'other bits every second time'),
    quant('nan', 'one NaN', id='nan'),
    quant('constant', 'every output is 1'),
    quant('stuck', 'one answer for ever', options=(('rows', '3072'),), reports='A12'),
    quant('status', 'returns an error', 'faulty.*could not be launched'),
    quant('hang', 'does not return', settings=HASTY),

    # ---- device
    device('rope-style', 'RoPE style swapped', named('rope', 'faulty')),
    device('index-rope-style', 'index RoPE half-split in place of interleaved', named('rope', 'faulty'), fast=True, reports='E2'),
    device('index-rope-absent', 'indexer without RoPE', named('rope', 'faulty'), reports='E3'),
    device('rope-position', 'positions begin at 1', named('rope', 'faulty')),
    device('norm-eps', 'norm epsilon 100 times', named('norm', 'faulty'), fast=True),
    device('norm-last-row', 'the last row is not normalised', named('norm', 'faulty')),
    device('layernorm-bias', 'layer norm without bias', named('norm', 'faulty')),
    device('router-softmax', 'softmax gate for sigmoid', named('router', 'faulty')),
    device('router-bias', 'routing bias ignored', named('router', 'faulty'), fast=True),
    device('router-scale', 'routed scale ignored', named('router', 'faulty')),
    device('router-unnormalized', 'chosen weights not normalised', named('router', 'faulty')),
    device('expert-rows', 'two rows of the sorted slots exchanged', named('expert.sort', 'faulty')),
    device('combine', 'one chosen expert left out of the sum', named('expert.combine', 'faulty')),
    device('scale-ignored', 'embeddings not scaled', named('scale', 'faulty'), model='gemma3'),
    device('residual-scale', 'half of the block is added', named('residual', 'faulty'), model='gemma3'),
    device('gather', 'logits of the row before', named('gather', 'faulty')),
    device('sample', 'greedy takes the second best', named('sampl', 'faulty')),
    device('mask', 'masked tokens stay', named('mask', 'faulty')),
    device('logprobs', "another token's log-probability", named('logprob', 'faulty')),
    device('race', 'other bits every second time'),
    device('status', 'an op returns an error', named('norm', 'faulty')),
    device('hang', 'an op does not return', named('norm', 'faulty'), settings=HASTY),

    # ---- model files
    file('tensor-missing', 'one tensor missing', AUDIT, r'blk\.2\.ffn_norm\.weight', fast=True),
    file('tensor-extra', 'one tensor too many', AUDIT, r'blk\.2\.ffn_norm_2\.weight'),
    file('tensor-renamed', 'one tensor renamed', AUDIT, r'blk\.2\.fnn_norm\.weight', fast=True),
    file('tensor-shape', 'one tensor of another shape', AUDIT, r'blk\.0\.ffn_down\.weight'),
    file('tensor-nan', 'NaN scale in one block', AUDIT, r'blk\.2\.ffn_gate_exps\.weight.*NaN', fast=True, reports='D2 A15'),
    file('pre-missing', 'tokenizer without its pre-tokenizer', AUDIT, r'tokenizer\.ggml\.pre', fast=True),
    file('pre-unknown', 'tokenizer with an unknown pre-tokenizer', AUDIT, r'tokenizer\.ggml\.pre.*xyz'),
    file('tensor-zeroed', 'one tensor zeroed', AUDIT, named(r'blk\.2\.attn_output\.weight', 'scale of 0'), fast=True, reports='A15'),
    file('tensor-scales-zero', 'the scales of one tensor zeroed', AUDIT, named(r'blk\.2\.ffn_up_exps\.weight', 'scale of 0'), reports='A15'),
    *content('layers-exchanged', "two layers' tensors exchanged", r'blk\.[23]\.', fast=True),
    *content('q-permuted', 'rows of the queries permuted', r'attn_q_b\.weight', reports='A5'),
    *content('kv-b-untransposed', 'kv_b not transposed', r'attn_k_b\.weight', reports='E7'),
    *content('gate-up-swapped', 'gate and up exchanged', r'ffn_(gate|up)'),
    *content('norms-swapped', 'norms of attention and feed-forward exchanged', r'(attn|ffn)_norm\.weight'),
    *content('latent-norms-swapped', 'norms of the two latents exchanged', r'attn_(q|kv)_a_norm\.weight'),
    *content('ends-swapped', 'embedding and output exchanged', r'token_embd\.weight|output\.weight'),
    *content('embedding-shifted', 'rows of the embedding shifted by one', r'token_embd\.weight'),
    calibrated('experts-exchanged', 'two experts exchanged in one of their matrices', r'blk\.2\.ffn_down_exps\.weight'),
    Fault('file.qk-permuted+calibration', 'queries and keys in the order of the checkpoint', COHERENCE, r'attn_[qk]\.weight',
          model=GQA, edit='qk-permuted', calibrated='file', reports='A5'),
    Fault('file.bos-added+calibration', 'another BOS policy', COHERENCE, 'tokenizer|metadata', edit='bos-added', calibrated='file'),
    Fault('file.tokens-shifted', 'token texts shifted by one', COHERENCE, SUSPECTS, edit='tokens-shifted'),
    Fault('file.tokens-shifted+calibration', 'token texts shifted by one', COHERENCE, 'tokenizer|metadata', edit='tokens-shifted', calibrated='file'),

    # ---- what an architecture's table could have wrong
    table('gate-softmax', 'softmax gate for sigmoid'),
    table('rope-base', 'RoPE base a hundredfold', fast=True),
    table('fewer-experts', 'one expert in place of two'),
    table('index-rope-style', 'index RoPE half-split in place of interleaved', reports='E2'),
    table('norm-epsilon', 'norm epsilon 100 times'),
    table('routed-scale', 'routed scale ignored'),
    table('routed-norm', 'chosen weights not normalised'),
    table('index-topk', 'index_topk an eighth', reports='E1'),
    table('rope-style', 'RoPE style swapped', model=GQA),
    table('window-longer', 'sliding window four times as long', model='gemma3'),
    table('norms-swapped', 'roles of two norms exchanged'),
    table('ends-swapped', 'roles of embedding and output exchanged'),
    dataclasses.replace(table('rope-base', 'RoPE base a hundredfold', calibrated=''), id='table.rope-base-uncalibrated'),

    # ---- while serving
    attention('nan', 'NaN after a while', 'faulty', WATCH),
    quant('constant', 'constant logits after a while', 'faulty', WATCH, options=(('rows', '3072'),), reports='A12 D3'),
    quant('stuck', 'one token for ever after a while', 'faulty', WATCH, id='repeats', options=(('rows', '3072'),), reports='A12'),
    attention('overwritten', "one stream's KV overwritten by another's", 'faulty', WATCH),
    attention('drift', 'results grow after a hundred decode steps', 'faulty', WATCH, reports='A4'),
    attention('hang', 'a step that does not end', 'faulty', WATCH, reports='K1'),
]
FAULTS = [dataclasses.replace(f, id='watch.' + f.id) if f.level == WATCH else f for f in FAULTS]

# Models that are made of a golden case by a healthy change.
VARIANTS = {'gemma3-softcap': ('gemma3', 'with-softcap'), 'gpt-oss-loud': ('gpt-oss', 'with-loud-experts')}

# Public bug reports of the groups A, B, D, E and K: the faults above that name them, a test elsewhere ("file: words in
# it"), or why there is nothing to test here.
REPORTS = {
    'A1': 'prefill falls through to nothing', 'A2': 'backend wrong for one head size', 'A3': 'split over devices',
    'A4': 'collapses after a hundred tokens', 'A5': 'rows of Q and K permuted', 'A6': 'quantized KV cache',
    'A7': 'NaN from half-precision scores', 'A8': 'CPU flash attention wrong', 'A11': 'launch failure not checked',
    'A12': 'garbled output in three forms', 'A13': 'results that a toolchain change outdates',
    'A14': 'result in a buffer that nobody reads', 'A15': 'the file itself is bad',
    'B1': 'variable that nobody reads', 'B2': 'backend of one component overridden', 'B3': 'absent library, said early',
    'B4': 'stub that raises when called', 'B5': 'another kernel than the one selected', 'B6': 'requested mode downgraded',
    'B7': 'no GPU, silently CPU', 'B8': 'files that are no plugins', 'B9': 'CPU build by accident',
    'B10': 'load error not printed', 'B11': 'slower instruction set, silently', 'B12': 'stale state of the call before',
    'B13': 'one phase lacking',
    'D1': 'one format wrong on one device', 'D2': 'NaN scales in blocks', 'D3': 'NaN perplexity', 'D5': 'accuracy lost with chunked prefix cache',
    'D6': 'soft cap, sinks, window', 'D7': 'one build nonsense, another right',
    'E1': 'incoherent beyond top-k', 'E2': 'RoPE style of the indexer', 'E3': 'indexer without RoPE', 'E4': 'no kernel for an architecture',
    'E6': 'wrong in tensor parallel', 'E7': 'attn_k_b transposed',
    'K1': 'health constantly OK', 'K2': 'check that cannot fail', 'K3': 'canary under load', 'K4': 'old server on the port',
}
ELSEWHERE = {
    'B1': 'tests/system/refusals.py: test_unknown_variable_is_fatal',
    'B2': 'tests/system/refusals.py: test_check_prints_configuration_and_plan', 'B5': 'tests/system/refusals.py: test_alternatives_are_taken_only_where_they_are_written',
    'B8': 'tests/daemon/plugin/registry_test.cpp: EachFileKeepsItsReason', 'B10': 'tests/daemon/plugin/probe_test.cpp: UnresolvedSymbolIsNamed',
    'B11': 'tests/plugins/quant/abi_test.cpp: AutoTakesTheBestTierAndSaysSo',
    'K1': 'tests/daemon/server/lifecycle_test.cpp: BeforeTheProofOnlyHealthIsAnswered',
    'K4': 'tests/daemon/server/lifecycle_test.cpp: ATakenPortIsTheOperatorsMistake',
}
NOT_HERE = {
    'A3': 'tensor parallelism is not served yet', 'E6': 'tensor parallelism is not served yet',
    'A13': 'results are kept under the hash of every image (daemon/assay/cache.hpp)',
    'K2': 'every row here is a check that has to fail',
    'K3': 'canaries are the watch\'s, which is not there yet',
    'E4': 'a missing kernel is absent.prefill', 'D5': 'the prefix cache shares bits (tests/daemon/engine/prefix_cache_test.cpp)',
}
