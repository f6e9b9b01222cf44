"""transformers' `DeepseekV4ForCausalLM` built from one of our GGUF targets: an independent oracle.

Names are mapped as both sides' state dicts print them. It has no roundings of stored rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.config import ModelConfig
from engine.gguf import GGUFFile

_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_sinks.weight": "self_attn.sinks",
    "attn_q_a.weight": "self_attn.q_a_proj.weight",
    "attn_q_a_norm.weight": "self_attn.q_a_norm.weight",
    "attn_q_b.weight": "self_attn.q_b_proj.weight",
    "attn_kv.weight": "self_attn.kv_proj.weight",
    "attn_kv_a_norm.weight": "self_attn.kv_norm.weight",
    "attn_output_a.weight": "self_attn.o_a_proj.weight",
    "attn_output_b.weight": "self_attn.o_b_proj.weight",
    "hc_attn_fn.weight": "attn_hc.fn",
    "hc_attn_base.weight": "attn_hc.base",
    "hc_attn_scale.weight": "attn_hc.scale",
    "hc_ffn_fn.weight": "ffn_hc.fn",
    "hc_ffn_base.weight": "ffn_hc.base",
    "hc_ffn_scale.weight": "ffn_hc.scale",
    "attn_compressor_kv.weight": "self_attn.compressor.kv_proj.weight",
    "attn_compressor_gate.weight": "self_attn.compressor.gate_proj.weight",
    "attn_compressor_norm.weight": "self_attn.compressor.kv_norm.weight",
    "attn_compressor_ape.weight": "self_attn.compressor.position_bias",
    "indexer.attn_q_b.weight": "self_attn.compressor.indexer.q_b_proj.weight",
    "indexer.proj.weight": "self_attn.compressor.indexer.scorer.weights_proj.weight",
    "indexer_compressor_kv.weight": "self_attn.compressor.indexer.kv_proj.weight",
    "indexer_compressor_gate.weight": "self_attn.compressor.indexer.gate_proj.weight",
    "indexer_compressor_norm.weight": "self_attn.compressor.indexer.kv_norm.weight",
    "indexer_compressor_ape.weight": "self_attn.compressor.indexer.position_bias",
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    "ffn_gate_tid2eid.weight": "mlp.gate.tid2eid",
    "ffn_down_exps.weight": "mlp.experts.down_proj",
    "ffn_gate_shexp.weight": "mlp.shared_experts.gate_proj.weight",
    "ffn_up_shexp.weight": "mlp.shared_experts.up_proj.weight",
    "ffn_down_shexp.weight": "mlp.shared_experts.down_proj.weight",
}

_ROOT = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "output_hc_fn.weight": "model.hc_head.hc_fn",
    "output_hc_base.weight": "model.hc_head.hc_base",
    "output_hc_scale.weight": "model.hc_head.hc_scale",
}


def state_dict(file: GGUFFile, config: ModelConfig) -> dict[str, torch.Tensor]:
    """All tensors of a target under transformers' names."""
    found: dict[str, torch.Tensor] = {}
    for name in file.tensors:
        if name in _ROOT:
            found[_ROOT[name]] = _float(file, name)
            continue
        _, layer, rest = name.split(".", 2)
        prefix = f"model.layers.{layer}."
        if rest == "ffn_gate_tid2eid.weight":
            values = torch.from_numpy(np.array(file.integers(name))).long()
            found[prefix + _LAYER[rest]] = values
        elif rest == "ffn_gate_exps.weight":
            up = _float(file, name.replace("gate", "up"))
            both = torch.cat([_float(file, name), up], 1)
            found[prefix + "mlp.experts.gate_up_proj"] = both
        elif rest != "ffn_up_exps.weight":
            values = _float(file, name)
            if rest == "attn_output_a.weight":
                values = values.reshape(-1, values.shape[-1])
            found[prefix + _LAYER[rest]] = values
    return found


def _float(file: GGUFFile, name: str) -> torch.Tensor:
    return torch.from_numpy(np.array(file.dequantise(name), np.float32))


def build(file: GGUFFile, config: ModelConfig) -> Any:
    """The transformers model, float32, eager, in evaluation mode."""
    from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

    c = config
    rope: dict[str, Any] = {}
    if c.yarn is not None:
        rope["rope_parameters"] = {
            "rope_type": "yarn",
            "factor": c.yarn.factor,
            "original_max_position_embeddings": c.yarn.original_context,
            "beta_fast": c.yarn.beta_fast,
            "beta_slow": c.yarn.beta_slow,
        }
    settings = DeepseekV4Config(
        vocab_size=c.vocab_size,
        hidden_size=c.dim,
        moe_intermediate_size=c.expert_dim,
        num_hidden_layers=c.layers,
        num_attention_heads=c.heads,
        num_key_value_heads=1,
        head_dim=c.head_dim,
        qk_rope_head_dim=c.rope_dim,
        partial_rotary_factor=c.rope_dim / c.head_dim,
        q_lora_rank=c.q_rank,
        o_groups=c.out_groups,
        o_lora_rank=c.out_rank,
        index_n_heads=c.index_heads,
        index_head_dim=c.index_dim,
        index_topk=c.index_top_k,
        sliding_window=c.window,
        compress_ratios=list(c.ratios),
        num_hash_layers=c.hash_layers,
        n_routed_experts=c.experts,
        n_shared_experts=1,
        num_experts_per_tok=c.experts_used,
        routed_scaling_factor=c.expert_scale,
        swiglu_limit=c.swiglu_clamp[0],
        hc_mult=4,
        hc_sinkhorn_iters=c.sinkhorn_iterations,
        hc_eps=c.hc_eps,
        rms_norm_eps=c.norm_eps,
        rope_theta=c.rope_base,
        compress_rope_theta=c.compress_rope_base,
        max_position_embeddings=c.context_length,
        tie_word_embeddings=False,
        attn_implementation="eager",
        experts_implementation="eager",
        **rope,
    )
    model = DeepseekV4ForCausalLM(settings).float().eval()
    model.load_state_dict(state_dict(file, c), strict=True)
    return model


def logits(model: Any, ids: list[int]) -> np.ndarray:
    """(n, V) logits of one pass without a cache."""
    with torch.inference_mode():
        out = model(torch.tensor([ids]), use_cache=False).logits[0]
    return np.asarray(out.float().numpy())
