"""The training forward equals transformers, and the cached decode equals the training forward."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from tools.tiny_model.decode import Cache, Generator, step
from tools.tiny_model.shape import Shape
from tools.tiny_model.target import Target, forward, fresh_target, from_named, linear

SHAPE = Shape(
    vocab=128,
    dim=64,
    ratios=(0, 0, 4, 128),
    heads=4,
    q_rank=32,
    groups=2,
    out_rank=16,
    index_heads=8,
    experts=4,
    experts_used=2,
    expert_dim=32,
    index_top_k=16,
    sinkhorn=4,
)
_NAMES = {
    "attn_norm": "input_layernorm.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "attn_sinks": "self_attn.sinks",
    "attn_q_a": "self_attn.q_a_proj.weight",
    "attn_q_a_norm": "self_attn.q_a_norm.weight",
    "attn_q_b": "self_attn.q_b_proj.weight",
    "attn_kv": "self_attn.kv_proj.weight",
    "attn_kv_a_norm": "self_attn.kv_norm.weight",
    "attn_output_a": "self_attn.o_a_proj.weight",
    "attn_output_b": "self_attn.o_b_proj.weight",
    "indexer.attn_q_b": "self_attn.compressor.indexer.q_b_proj.weight",
    "indexer.proj": "self_attn.compressor.indexer.scorer.weights_proj.weight",
    "ffn_gate_inp": "mlp.gate.weight",
    "exp_probs_b": "mlp.gate.e_score_correction_bias",
    "ffn_gate_tid2eid": "mlp.gate.tid2eid",
    "ffn_down_exps": "mlp.experts.down_proj",
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj.weight",
    "ffn_up_shexp": "mlp.shared_experts.up_proj.weight",
    "ffn_down_shexp": "mlp.shared_experts.down_proj.weight",
    **{
        f"hc_{part}_{name}": f"{part}_hc.{name}"
        for part in ("attn", "ffn")
        for name in ("fn", "base", "scale")
    },
    **{
        f"{ours}_{name}": f"self_attn.compressor.{theirs}{tensor}"
        for ours, theirs in (("attn_compressor", ""), ("indexer_compressor", "indexer."))
        for name, tensor in (
            ("kv", "kv_proj.weight"),
            ("gate", "gate_proj.weight"),
            ("ape", "position_bias"),
            ("norm", "kv_norm.weight"),
        )
    },
}
_TOP = {
    "token_embd": "model.embed_tokens.weight",
    "output": "lm_head.weight",
    "output_norm": "model.norm.weight",
    "output_hc_fn": "model.hc_head.hc_fn",
    "output_hc_base": "model.hc_head.hc_base",
    "output_hc_scale": "model.hc_head.hc_scale",
}


@cache
def random_target(shape: Shape = SHAPE) -> Target:
    """A target whose norms, biases and sinks are not at their neutral values; not to be changed."""
    target = fresh_target(shape, 0, "cpu")
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, tensor in target.trainable().items():
            if tensor.ndim == 1 or name.endswith("_ape"):
                tensor += 0.3 * torch.randn(tensor.shape, generator=rng)
        for p in target.layers:
            if "exp_probs_b" in p:
                p["exp_probs_b"] += 0.1 * torch.randn(shape.experts, generator=rng)
    return target


def random_ids(rows: int, tokens: int, seed: int = 2) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(9, SHAPE.vocab, (rows, tokens), generator=rng)


def logits(target: Target, ids: Tensor, rounding: bool) -> Tensor:
    with torch.no_grad():
        final, _ = forward(target, ids, rounding=rounding)
        return linear(final, target.top["output"])


def test_forward_equals_transformers() -> None:
    transformers = pytest.importorskip("transformers", "5.24")
    shape, target = SHAPE, random_target()
    config = transformers.DeepseekV4Config(
        vocab_size=shape.vocab,
        hidden_size=shape.dim,
        moe_intermediate_size=shape.expert_dim,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        head_dim=shape.head_dim,
        partial_rotary_factor=shape.rope_dim / shape.head_dim,
        q_lora_rank=shape.q_rank,
        o_groups=shape.groups,
        o_lora_rank=shape.out_rank,
        index_n_heads=shape.index_heads,
        index_head_dim=shape.index_dim,
        index_topk=shape.index_top_k,
        n_routed_experts=shape.experts,
        num_experts_per_tok=shape.experts_used,
        compress_ratios=list(shape.ratios),
        num_hash_layers=shape.hash_layers,
        sliding_window=shape.window,
        hc_sinkhorn_iters=shape.sinkhorn,
        use_cache=False,
    )
    oracle = transformers.DeepseekV4ForCausalLM._from_config(config, attn_implementation="eager")
    state = {_TOP[name]: tensor for name, tensor in target.top.items()}
    for i, p in enumerate(target.layers):
        for name, tensor in p.items():
            if name not in ("ffn_gate_exps", "ffn_up_exps"):
                state[f"model.layers.{i}.{_NAMES[name]}"] = tensor
        both = torch.cat([p["ffn_gate_exps"], p["ffn_up_exps"]], 1)
        state[f"model.layers.{i}.mlp.experts.gate_up_proj"] = both
    oracle.load_state_dict({k: v.detach() for k, v in state.items()}, strict=True)
    ids = random_ids(1, 256)
    with torch.no_grad():
        wanted = oracle.eval()(input_ids=ids, use_cache=False).logits
    difference = (logits(target, ids, rounding=False) - wanted).abs().amax(-1)[0]
    # Indexer scores of exactly 0 tie, and the two then select different rows.
    assert float(difference[: 4 * shape.index_top_k].max()) < 1e-5
    assert float((difference < 1e-4).float().mean()) > 0.9
    assert float(difference.max()) < 2e-2


@pytest.mark.parametrize(("rounding", "most"), [(False, 1e-4), (True, 0.5)])
def test_cached_decode_equals_the_forward(rounding: bool, most: float) -> None:
    """Past the window, the first row of every compressor and the first real selection."""
    target, ids, steps = random_target(), random_ids(2, 256), 140
    wanted = logits(target, ids, rounding)[:, :steps]
    cache = Cache(target, 2, 256)
    with torch.no_grad():
        rows = [
            step(target, cache, ids[:, i], i % 4 == 3, i % 128 == 127, rounding)
            for i in range(steps)
        ]
    difference = (torch.stack(rows, 1) - wanted).abs().amax((0, 2))
    assert float(difference.max()) < most
    assert float(difference.median()) < 1e-3


def test_generation_repeats_no_ngram_and_records_what_was_banned() -> None:
    target = random_target(replace(SHAPE, vocab=32))
    loud = {**target.top, "output": 30 * target.top["output"].detach()}  # clear choices that loop
    target = replace(target, top=loud)
    written = Generator(target, 2, 96, rounding=True, no_repeat=3).run([[0, 9, 10], [0] + [11] * 6])
    for row, first, banned in zip(
        written.tokens.tolist(), written.prompt_lengths.tolist(), written.banned, strict=True
    ):
        own = row[first:]
        grams = [tuple(own[i : i + 3]) for i in range(len(own) - 2)]
        assert len(set(grams)) == len(grams)
        for place in range(first, 96):
            history = row[first:place]
            expected = {
                history[i + 2]
                for i in range(len(history) - 2)
                if len(history) >= 2 and history[i : i + 2] == history[-2:]
            }
            found = {token for token in banned[place].tolist() if token >= 0}
            assert found == expected or (len(expected) > 4 and found < expected)


def test_names_round_trip() -> None:
    target = random_target()
    again = from_named(target.shape, target.named())
    assert again.top.keys() == target.top.keys()
    assert [p.keys() for p in again.layers] == [p.keys() for p in target.layers]
