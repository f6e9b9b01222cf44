"""Trains drafters on text that the target wrote, several sizes side by side on one GPU.

Owns the mixture of own text and corpus, the features kept on the device, and the schedule. All
drafters see the same batches, so the target's distributions are computed once a step.

    python -m tools.tiny_model.train_drafter WEIGHTS DATA OUT --stages 1 2 3 --seconds 450
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tools.tiny_model import data as files
from tools.tiny_model import drafter as dspark
from tools.tiny_model import target as model
from tools.tiny_model.decode import MAX_BANNED, Generated
from tools.tiny_model.evaluate import measure
from tools.tiny_model.file_types import load_weights, marked, save_weights
from tools.tiny_model.generate import chat_prompts, mixed_prompts, own_text
from tools.tiny_model.shape import DraftShape, Shape
from tools.tiny_model.tokenizer import EOS
from tools.tiny_model.train_target import TINY

ANCHORS = 64
"""Blocks a row and step."""
OWN_SHARE = 0.9
"""Share of rows from the target's own text; the others are corpus, which no engine drafts on."""
CE_START, CE_END, CE_UNTIL = 1.0, 0.1, 0.4
"""The cross-entropy's weight falls to the recipe's 0.1 within this share of the run: the L1 term
alone has little gradient while the drafter knows nothing."""
BIAS_STEP = 1e-3
"""As in the target's training."""
WARM_UP = 200
"""Steps."""


@dataclass
class Text:
    """Rows to train on, and where blocks may stand in them (CPU tensors)."""

    tokens: Tensor
    """(N, T)"""
    banned: Tensor
    """(N, T, n) ids that the no-repeat rule forbade at each place, -1 where none"""
    first: Tensor
    """(N,) the first anchor"""
    end: Tensor
    """(N,) behind the last anchor"""


def own_rows(written: Generated, block: int) -> Text:
    """The places where an engine drafts: behind the prompt and before the first end token."""
    length = written.tokens.shape[1]
    behind = torch.arange(length) >= written.prompt_lengths[:, None]
    ended = (written.tokens == EOS) & behind
    end = torch.where(ended.any(1), ended.int().argmax(1), length)
    return Text(
        written.tokens, written.banned, written.prompt_lengths, end.clamp(max=length - block)
    )


def corpus_rows(tokens: Tensor, block: int) -> Text:
    """All places, without a rule."""
    n, length = tokens.shape
    return Text(
        tokens,
        torch.full((n, length, MAX_BANNED), -1, dtype=torch.int16),
        torch.ones(n, dtype=torch.long),
        torch.full((n,), length - block),
    )


class Features:
    """A text with the target's stream means and final rows, kept on the device."""

    def __init__(
        self,
        target: model.Target,
        text: Text,
        taps: int,
        *,
        batch: int,
        layer_fn,
        dtype: torch.dtype,
    ) -> None:
        device = target.top["output"].device
        self.tokens, self.banned = text.tokens.int().to(device), text.banned.to(device)
        self.first, self.end = text.first.to(device), text.end.to(device)
        n, length = text.tokens.shape
        dim = target.shape.dim
        self.taps = torch.empty(n, length, taps * dim, dtype=dtype, device=device)
        self.final = torch.empty(n, length, dim, dtype=dtype, device=device)
        with torch.no_grad():
            for i in range(0, n, batch):
                at = slice(min(i, max(0, n - batch)), min(i, max(0, n - batch)) + batch)
                final, means = model.forward(
                    target,
                    self.tokens[at].long(),
                    rounding=True,
                    dtype=dtype,
                    taps=taps,
                    layer_fn=layer_fn,
                )
                self.final[at], self.taps[at] = final, means

    def sample(self, count: int, anchors: int, rng: torch.Generator) -> tuple[Tensor, ...]:
        """Tokens (count, T), bans, taps, final rows and anchors (count, A) of random rows.

        Every place of the text is equally likely to be an anchor.
        """
        places = (self.end - self.first).clamp_min(0)
        row = torch.multinomial(places.float(), count, replacement=True, generator=rng)
        spread = torch.rand(count, anchors, device=row.device, generator=rng)
        at = self.first[row, None] + (spread * places[row, None]).long()
        return (
            self.tokens[row].long(), self.banned[row].long(), self.taps[row], self.final[row], at
        )  # fmt: skip


class Student:
    """One drafter with its optimiser.

    Args:
        mxfp4: as `marked` takes them; the others' rounding to 8 bits is not felt.
    """

    def __init__(self, drafter: dspark.Drafter, mxfp4: Sequence[str], cuda: bool) -> None:
        self.drafter = drafter
        self._small = marked(drafter.named(), mxfp4)
        self.parameters = list(self.drafter.trainable().values())
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0, fused=cuda
        )

    def rounded(self) -> dspark.Drafter:
        """The drafter as its file will hold it, for gradients that pass to the whole one."""
        return dspark.in_4_bits(self.drafter, self._small)

    def update(self, loss: Tensor, loads: list[Tensor], lr: float, bias_step: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        for p, load in zip(self.drafter.stages, loads, strict=True):
            p["exp_probs_b"].add_(torch.sign(load.mean() - load), alpha=bias_step)


def load_target(weights: Path, shape: Shape, device: str) -> model.Target:
    """The target as its file will hold it, without gradients."""
    named = load_weights(weights, "target", device)
    return model.from_named(shape, named)


def main() -> None:
    started = time.time()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--stages", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seconds", type=float, default=450.0)
    parser.add_argument(
        "--until", type=float, default=1e9, help="training ends so long after the start"
    )
    parser.add_argument("--start", type=Path, help="train the drafter of this folder on")
    parser.add_argument("--expert-dim", type=int, default=128)
    parser.add_argument(
        "--own-head", action="store_true", help="a head of its own, which begins as the target's"
    )
    parser.add_argument("--mxfp4", nargs="+", default=[], help="matrices, as export's")
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--samples", type=int, default=48)
    parser.add_argument("--own-rows", type=int, default=24576)
    parser.add_argument("--corpus-rows", type=int, default=6144)
    parser.add_argument("--parallel", type=int, default=4096, help="rows generated side by side")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry-run", action="store_true", help="the toy shape, for a CPU")
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    dtype = torch.bfloat16 if cuda else torch.float32

    def log(*words: object) -> None:
        print(f"[{time.time() - started:.1f}]", *words, flush=True)

    def compiled(f):
        return torch.compile(f, fullgraph=True, dynamic=False) if cuda else f

    target = load_target(args.weights, TINY if args.dry_run else Shape(), device)
    train = files.load_train(args.data, "cpu")
    ids, _ = files.load_chat(args.data)
    prompts = mixed_prompts(
        args.own_rows,
        train,
        chat_prompts(ids.tolist()),
        files.load_questions(args.data),
        args.seed,
    )
    torch.set_float32_matmul_precision("high")
    block = DraftShape().block
    written = own_text(target, prompts, args.length, args.parallel, log=log)
    corpus = files.CorpusRows(train, args.length, args.seed + 3).take(args.corpus_rows)[:, :-1]
    layer_fn = compiled(model.layer)
    batch = min(64, args.corpus_rows)
    pools = [
        Features(target, text, DraftShape().taps, batch=batch, layer_fn=layer_fn, dtype=dtype)
        for text in (own_rows(written, block), corpus_rows(corpus, block))
    ]
    log("features of", sum(p.tokens.numel() for p in pools) / 1e6, "M tokens")
    if cuda:
        log("memory", torch.cuda.memory_allocated() / 1e9, "GB")

    stage_fn, loss_fn, teach = (
        compiled(dspark.stage),
        compiled(dspark.losses),
        compiled(dspark.teacher),
    )
    students = {}
    for s in args.stages:
        if args.start is None:
            sizes = DraftShape(stages=s, expert_dim=args.expert_dim)
            fresh = dspark.fresh_drafter(target, sizes, args.seed + s)
        else:
            named = load_weights(args.start, f"drafter{s}_", device)
            fresh = dspark.continued(target.shape, named, args.expert_dim)
        if args.own_head and dspark.DRAFT_HEAD not in fresh.top:
            head = target.top["output"].detach().clone()
            fresh.top[dspark.DRAFT_HEAD] = head.requires_grad_()
        students[s] = Student(fresh, args.mxfp4, cuda)
    rng = torch.Generator(device).manual_seed(args.seed)
    own_count = round(args.samples * OWN_SHARE)
    output = target.top["output"]

    def step(done: float, rate: float) -> dict[int, tuple[Tensor, Tensor]]:
        parts = [
            pool.sample(n, ANCHORS, rng)
            for pool, n in zip(pools, (own_count, args.samples - own_count), strict=True)
        ]
        tokens, banned, taps, final, anchors = (torch.cat(p) for p in zip(*parts, strict=True))
        bans = dspark.block_bans(banned, anchors, block)
        with torch.no_grad():
            wanted = teach(final, output, anchors, bans)
        ce = CE_START + (CE_END - CE_START) * min(1.0, done / CE_UNTIL)
        if args.start is not None:
            ce = CE_END
        seen = {}
        for stages, student in students.items():
            drafter = student.rounded()
            u, loads = dspark.rows(
                drafter,
                target.top,
                taps,
                tokens,
                anchors,
                rounding=True,
                dtype=dtype,
                stage_fn=stage_fn,
            )
            loss, accept, same = loss_fn(
                u,
                drafter.top,
                output,
                wanted,
                bans,
                tokens,
                anchors,
                torch.tensor(ce, device=device),
            )
            student.update(loss, loads, args.lr * rate, BIAS_STEP if done < 0.85 else 0.0)
            seen[stages] = (accept, same)
        return seen

    step(0.0, 0.0)
    log("compiled")
    begun = time.time()
    seconds = min(args.seconds, args.until - (begun - started))
    steps, events = 0, deque()
    seen: dict[int, list[tuple[Tensor, Tensor]]] = {s: [] for s in students}
    curve = []
    while (done := (time.time() - begun) / seconds) < 1:
        rate = min(1.0, (steps + 1) / WARM_UP) * (
            0.5 * (1 + math.cos(math.pi * done)) * 0.99 + 0.01
        )
        for stages, figures in step(done, rate).items():
            seen[stages].append(figures)
        steps += 1
        if cuda:
            events.append(torch.cuda.Event())
            events[-1].record()
            if len(events) > 3:
                events.popleft().synchronize()
        if steps % 500 == 0:
            for stages, figures in seen.items():
                accept = torch.stack([a for a, _ in figures]).mean(0).tolist()
                same = torch.stack([b for _, b in figures]).mean(0).tolist()
                figures.clear()
                curve.append((stages, steps, accept, same))
                log(
                    f"step {steps} {done:.2f} stages {stages} accept",
                    [round(x, 3) for x in accept],
                    "same argmax",
                    [round(x, 3) for x in same],
                )
    log(f"{steps} steps, {steps * args.samples * ANCHORS / 1e6:.1f} M anchors")
    for stages, student in students.items():
        save_weights(student.rounded().named(), args.out, f"drafter{stages}_", 1)
    (args.out / "curve.json").write_text(json.dumps(curve))
    torch.set_float32_matmul_precision("highest")
    if args.dry_run:
        return
    drafters = {}
    for stages in students:
        named = load_weights(args.out, f"drafter{stages}_", device)
        drafters[stages] = dspark.from_named(target.shape, DraftShape.of(named), named)
    modes = [("fp8", True), ("none", True)]
    report, texts = measure(target, drafters, files.load_prompts(args.data), modes=modes, log=log)
    (args.out / "evaluation.json").write_text(json.dumps(report, indent=1))
    (args.out / "texts.json").write_text(json.dumps(texts))
    log("done")


if __name__ == "__main__":
    main()
