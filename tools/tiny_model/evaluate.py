"""Measures a pair on prompts: the greedy text, loops, accepted depth, confidence.

Owns the figures of the model card. Works on whole rows: the target writes its text, the drafter
proposes at every place of it, and the cycles are walked through afterwards; that equals a real
decode because greedy drafts never change the text.

    python -m tools.tiny_model.evaluate WEIGHTS DATA OUT --stages 1 2 3
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tools.tiny_model import data as files
from tools.tiny_model import drafter as dspark
from tools.tiny_model import target as model
from tools.tiny_model.decode import Generated, Generator
from tools.tiny_model.export import NO_REPEAT
from tools.tiny_model.file_types import load_weights
from tools.tiny_model.shape import DraftShape, Shape
from tools.tiny_model.tokenizer import EOS

LENGTH = 896
"""Tokens a row with its prompt: 800 and more generated ones for every committed prompt."""
Layer = model.Layer


@dataclass
class Cycles:
    """The speculative cycles over one row: where each began and how many drafts it kept."""

    starts: list[int]
    depths: list[int]
    reached: np.ndarray
    """(K,) cycles in which draft k was judged"""
    kept: np.ndarray
    """(K,) of these, accepted"""
    judged: list[tuple[float, bool]]
    """Confidence of each judged draft and whether it was accepted"""


def repeated(tokens: list[int], n: int) -> np.ndarray:
    """Mask of the tokens inside an n-gram that occurred before in `tokens`."""
    mask, seen = np.zeros(len(tokens), bool), set()
    for i in range(len(tokens) - n + 1):
        key = tuple(tokens[i : i + n])
        if key in seen:
            mask[i : i + n] = True
        seen.add(key)
    return mask


def walk(
    tokens: list[int],
    first: int,
    end: int,
    drafts: np.ndarray,
    confidence: np.ndarray,
    threshold: float = 0.0,
) -> Cycles:
    """Walks the cycles of one row.

    Args:
        tokens: the row; `first` is the place of its first generated token, `end` its length.
        drafts, confidence: (T, K), row p for the block whose anchor stands at place p.
    """
    block = drafts.shape[1]
    cycles = Cycles([], [], np.zeros(block, int), np.zeros(block, int), [])
    at = first
    while at + block + 1 < end:
        kept = 0
        for k in range(block):
            if confidence[at, k] < threshold:
                break
            right = int(drafts[at, k]) == tokens[at + 1 + k]
            cycles.reached[k] += 1
            cycles.kept[k] += right
            cycles.judged.append((float(confidence[at, k]), right))
            if not right:
                break
            kept += 1
        cycles.starts.append(at)
        cycles.depths.append(kept + 1)
        at += kept + 1
    return cycles


def auc(judged: list[tuple[float, bool]]) -> float:
    """Probability that an accepted draft has more confidence than a rejected one."""
    scores = np.array([s for s, _ in judged])
    labels = np.array([r for _, r in judged])
    ranks = scores.argsort().argsort() + 1.0
    good, bad = labels.sum(), (~labels).sum()
    return float((ranks[labels].sum() - good * (good + 1) / 2) / max(1, good * bad))


def write_text(
    target: model.Target, prompts: list[list[int]], rounding: bool, rule: bool
) -> Generated:
    generator = Generator(
        target, len(prompts), LENGTH, rounding=rounding, no_repeat=NO_REPEAT if rule else 0
    )
    return generator.run(prompts)


@torch.no_grad()
def proposals(
    target: model.Target,
    drafter: dspark.Drafter,
    written: Generated,
    rounding: bool,
    markov: bool = True,
    batch: int = 8,
    layer_fn: Layer = model.layer,
) -> tuple[np.ndarray, np.ndarray]:
    """Drafts (N, T, K) and confidences at every anchor 1..T - K - 2 of the rows (0 elsewhere)."""
    device, block = target.top["output"].device, drafter.draft.block
    n, length = written.tokens.shape
    drafts = np.zeros((n, length, block), np.int64)
    confidence = np.zeros((n, length, block), np.float32)
    for i in range(0, n, batch):
        tokens = written.tokens[i : i + batch].to(device)
        _, taps = model.forward(
            target, tokens, rounding=rounding, taps=drafter.draft.taps, layer_fn=layer_fn
        )
        banned = written.banned[i : i + batch].to(device)
        for start in range(1, length - block - 1, 128):
            anchors = torch.arange(start, min(start + 128, length - block - 1), device=device)
            anchors = anchors[None].expand(len(tokens), -1)
            u, _ = dspark.rows(
                drafter, target.top, taps, tokens, anchors, rounding=rounding, dtype=torch.float32
            )
            d, c = dspark.propose(
                u,
                drafter.top,
                target.top["output"],
                tokens.gather(1, anchors),
                dspark.block_bans(banned, anchors, block),
                markov,
            )
            span = slice(start, start + anchors.shape[1])
            drafts[i : i + batch, span] = d.cpu().numpy()
            confidence[i : i + batch, span] = c.cpu().numpy()
    return drafts, confidence


def summary(
    written: Generated,
    drafts: np.ndarray,
    confidence: np.ndarray,
    which: list[int],
    to_eos: bool = False,
    keep_repeats: bool = False,
    threshold: float = 0.0,
) -> dict:
    """Figures over the rows `which`; tokens inside a repeated 8-gram are left out unless asked."""
    depths: list[int] = []
    judged: list[tuple[float, bool]] = []
    reached, kept = np.zeros(drafts.shape[2], int), np.zeros(drafts.shape[2], int)
    rows = []
    for r in which:
        tokens, first = written.tokens[r].tolist(), int(written.prompt_lengths[r])
        end = len(tokens)
        if to_eos and EOS in tokens[first:]:
            end = tokens.index(EOS, first) + drafts.shape[2] + 2
        cycles = walk(tokens, first, min(end, len(tokens)), drafts[r], confidence[r], threshold)
        loop = np.concatenate([np.zeros(first, bool), repeated(tokens[first:], 8)])
        own = [
            d
            for at, d in zip(cycles.starts, cycles.depths, strict=True)
            if keep_repeats or not loop[at + 1]
        ]
        depths += own
        rows.append(round(float(np.mean(own)), 2) if own else None)
        reached, kept = reached + cycles.reached, kept + cycles.kept
        judged += cycles.judged
    return {
        "depth": round(float(np.mean(depths)), 3) if depths else None,
        "cycles": len(depths),
        "accept_by_position": [
            round(float(k / max(1, n)), 3) for k, n in zip(kept, reached, strict=True)
        ],
        "proposed": round(len(judged) / max(1, sum(1 for _ in depths)), 2),
        "accept_rate": round(float(kept.sum() / max(1, len(judged))), 3),
        "auc": round(auc(judged), 3) if judged else None,
        "rows": rows,
    }


def loop_share(written: Generated, which: list[int]) -> float:
    """Mean share of generated tokens inside an 8-gram that occurred before."""
    masks = [
        repeated(written.tokens[r].tolist()[int(written.prompt_lengths[r]) :], 8).mean()
        for r in which
    ]
    return round(float(np.mean(masks)), 3)


def measure(
    target: model.Target,
    drafters: dict[int, dspark.Drafter],
    prompts: dict[str, list[dict]],
    *,
    modes: list[tuple[str, bool]],
    log,
    layer_fn: Layer = model.layer,
) -> tuple[dict, dict]:
    """All figures for every drafter, and the rows of tokens by mode."""
    names = [(group, row) for group, rows in prompts.items() for row in rows]
    groups = {g: [i for i, (name, _) in enumerate(names) if name == g] for g in prompts}
    report: dict = {}
    texts: dict = {}
    for kv, rule in modes:
        rounding = kv == "fp8"
        mode = f"{kv} {'rule' if rule else 'free'}"
        written = write_text(target, [row["ids"] for _, row in names], rounding, rule)
        texts[mode] = [
            {
                "id": row["id"],
                "group": group,
                "prompt_tokens": int(written.prompt_lengths[i]),
                "tokens": written.tokens[i].tolist(),
            }
            for i, (group, row) in enumerate(names)
        ]
        out = report[mode] = {"loops": {g: loop_share(written, w) for g, w in groups.items()}}
        near = [written.margins[i, int(written.prompt_lengths[i]) :] for i in range(len(names))]
        gaps = torch.cat(near)
        out["margins_below"] = {
            str(x): round(float((gaps < x).float().mean()), 4) for x in (0.01, 0.05, 0.1)
        }
        for stages, drafter in drafters.items():
            drafts, confidence = proposals(target, drafter, written, rounding, layer_fn=layer_fn)
            figures = out[f"stages {stages}"] = {}
            for g, which in groups.items():
                figures[g] = summary(written, drafts, confidence, which)
                figures[g + " to eos"] = summary(written, drafts, confidence, which, to_eos=True)
                if not rule:
                    figures[g + " with repeats"] = summary(
                        written, drafts, confidence, which, keep_repeats=True
                    )
                for t in (0.3, 0.5, 0.7, 0.9):
                    figures[f"{g} confidence {t}"] = {
                        k: v
                        for k, v in summary(written, drafts, confidence, which, threshold=t).items()
                        if k in ("depth", "proposed", "accept_rate")
                    }
            if kv == "fp8":
                bare, confidence = proposals(
                    target, drafter, written, rounding, False, layer_fn=layer_fn
                )
                for g, which in groups.items():
                    figures[g + " markov off"] = summary(written, bare, confidence, which)
            for g in groups:
                log(
                    mode,
                    "stages",
                    stages,
                    g,
                    {k: figures[g][k] for k in ("depth", "accept_by_position", "auc")},
                    "to eos",
                    figures[g + " to eos"]["depth"],
                    "markov off",
                    figures.get(g + " markov off", {}).get("accept_by_position"),
                )
    return report, texts


MODES = [("fp8", True), ("fp8", False), ("none", True), ("none", False)]


def main() -> None:
    started = time.time()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--stages", type=int, nargs="+", default=[2])
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("highest")
    target = model.from_named(Shape(), load_weights(args.weights, "target", device))
    drafters = {}
    for stages in args.stages:
        named = load_weights(args.weights, f"drafter{stages}_", device)
        drafters[stages] = dspark.from_named(target.shape, DraftShape.of(named), named)
    prompts = files.load_prompts(args.data)
    report, texts = measure(
        target,
        drafters,
        prompts,
        modes=MODES,
        log=lambda *w: print(f"[{time.time() - started:.1f}]", *w, flush=True),
    )
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "evaluation.json").write_text(json.dumps(report, indent=1))
    (args.out / "texts.json").write_text(json.dumps(texts))


if __name__ == "__main__":
    main()
