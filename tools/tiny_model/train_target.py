"""Trains the tiny target on one GPU for a number of seconds.

Owns the optimiser, the mixture of text and chat, the schedules and the final evaluation. Every
layer kind is compiled once; weights are arguments, so layers of a kind share the code.

    python -m tools.tiny_model.train_target DATA OUT --seconds 450
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.tiny_model import data as files
from tools.tiny_model import target as model
from tools.tiny_model.file_types import load_weights, save_weights
from tools.tiny_model.shape import Shape
from tools.tiny_model.tokenizer import EOS

CHAT_SHARE, CHAT_SHARE_END = 0.05, 0.20
"""Share of chat rows, and the same in the last part of the run."""
CHAT_END = 0.85
"""Where the last part begins, as a share of the run."""
BIAS_STEP = 1e-3
"""Change of a router bias a step, towards equal loads."""
BIAS_FROZEN = 0.85
INDEX_LOSS = 0.1
"""Weight of the indexer's loss."""
WARM_UP = 300
"""Steps."""
TINY = Shape(
    vocab=8192,
    dim=64,
    ratios=(0, 0, 4, 128),
    heads=2,
    q_rank=32,
    groups=2,
    out_rank=32,
    index_heads=2,
    experts=4,
    experts_used=2,
    expert_dim=32,
)
"""For a dry run on a CPU."""


def output_loss(streams: Tensor, labels: Tensor, top: dict[str, Tensor]) -> Tensor:
    logits = model.linear(model.final_row(streams, top), top["output"]).float()
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def optimiser(target: model.Target, lr: float, cuda: bool) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices only, not on the embedding, biases or mixers."""
    decay, plain = [], []
    for name, tensor in target.trainable().items():
        matrix = tensor.ndim >= 2 and not name.endswith(("_ape", "_fn")) and name != "token_embd"
        (decay if matrix else plain).append(tensor)
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=cuda)


class Trainer:
    """The model, its optimiser and the compiled functions."""

    def __init__(self, shape: Shape, *, seed: int, lr: float, device: str, rounding: bool) -> None:
        self.cuda = device == "cuda"
        self.device, self.rounding = device, rounding
        self.target = model.fresh_target(shape, seed, device)
        self.parameters = list(self.target.trainable().values())
        self.optimiser = optimiser(self.target, lr, self.cuda)
        compiled = (
            (lambda f: torch.compile(f, fullgraph=True, dynamic=False))
            if self.cuda
            else (lambda f: f)
        )
        self.layer, self.output_loss = compiled(model.layer), compiled(output_loss)
        self.dtype = torch.bfloat16 if self.cuda else torch.float32

    def loss(self, rows: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Cross-entropy, indexer loss and expert loads of (B, T + 1) tokens."""
        ids, labels = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
        streams = model.embed(ids, self.target.top, self.dtype)
        index_loss, loads = torch.zeros((), device=self.device), []
        for p, ratio in zip(self.target.layers, self.target.shape.ratios, strict=True):
            streams, part, load = self.layer(
                streams, ids, p, ratio, self.target.shape, self.rounding, True, True
            )
            index_loss = index_loss + part
            loads.append(load)
        return self.output_loss(streams, labels, self.target.top), index_loss, loads

    def step(self, rows: Tensor, lr: float, bias_step: float) -> tuple[Tensor, Tensor, Tensor]:
        """One update; returns loss, indexer loss and gradient norm, still on the device."""
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        loss, index_loss, loads = self.loss(rows)
        (loss + INDEX_LOSS * index_loss).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if bias_step:
            for p, load in zip(self.target.layers, loads, strict=True):
                if "exp_probs_b" in p:
                    p["exp_probs_b"].add_(torch.sign(load.mean() - load), alpha=bias_step)
        return loss.detach(), index_loss.detach(), norm


def bits_per_byte(
    target: model.Target,
    held: dict[str, tuple[Tensor, int]],
    length: int,
    rounding: bool,
    batch: int = 24,
    layer_fn=model.layer,
) -> dict[str, float]:
    """Bits per byte of held-out text in rows of `length` tokens without overlap, float32.

    Document boundaries are not counted as text: neither their bits nor bytes.
    """
    device, found = target.top["output"].device, {}
    for kind, (ids, size) in held.items():
        count = (len(ids) - 1) // length
        nats, seen = torch.zeros((), device=device, dtype=torch.float64), 0
        for i in range(0, count, batch):
            rows = torch.stack(
                [ids[j * length : (j + 1) * length + 1] for j in range(i, min(i + batch, count))]
            ).to(device)
            with torch.no_grad():
                final, _ = model.forward(target, rows[:, :-1], rounding=rounding, layer_fn=layer_fn)
                logits = model.linear(final, target.top["output"])
                loss = F.cross_entropy(
                    logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none"
                )
            text = rows[:, 1:].flatten() > EOS
            nats += (loss * text).sum().double()
            seen += rows[:, 1:].numel()
        share = seen / len(ids)  # of the text that whole rows cover
        found[kind] = float(nats) / math.log(2) / (size * share)
    return found


def main() -> None:
    started = time.time()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=450.0, help="training time")
    parser.add_argument(
        "--until", type=float, default=1e9, help="training ends so long after the start"
    )
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry-run", action="store_true", help="a toy shape, for a CPU")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = TINY if args.dry_run else Shape()

    def log(*words: object) -> None:
        print(f"[{time.time() - started:.1f}]", *words, flush=True)

    train = files.load_train(args.data, device)
    corpus = files.CorpusRows(train, args.length, args.seed + 1)
    chat = files.ChatRows(*files.load_chat(args.data), args.length, args.seed + 2, device)
    held = files.load_held(args.data)
    log("data", len(train) / 1e6, "M tokens,", len(chat.rows), "chat rows")
    trainer = Trainer(shape, seed=args.seed, lr=args.lr, device=device, rounding=True)
    parameters = sum(p.numel() for p in trainer.parameters)
    loss, _, _ = trainer.loss(corpus.take(args.rows))
    loss.backward()
    trainer.optimiser.zero_grad(set_to_none=True)
    log("compiled;", parameters / 1e6, "M parameters, first loss", round(loss.item(), 3))

    begun = time.time()
    seconds = min(args.seconds, args.until - (begun - started))
    steps, chat_rows, losses, events = 0, 0, [], deque()
    owed = 0.0
    while (done := (time.time() - begun) / seconds) < 1:
        rate = 0.5 * (1 + math.cos(math.pi * done)) * 0.995 + 0.005
        owed += args.rows * (CHAT_SHARE if done < CHAT_END else CHAT_SHARE_END)
        from_chat = int(owed)
        owed -= from_chat
        rows = torch.cat([corpus.take(args.rows - from_chat), chat.take(from_chat)])
        loss, index_loss, norm = trainer.step(
            rows,
            args.lr * min(1.0, (steps + 1) / WARM_UP) * rate,
            BIAS_STEP if done < BIAS_FROZEN else 0.0,
        )
        steps, chat_rows = steps + 1, chat_rows + from_chat
        losses.append(loss)
        if trainer.cuda:  # at most three steps queued: no host read in the loop otherwise
            events.append(torch.cuda.Event())
            events[-1].record()
            if len(events) > 3:
                events.popleft().synchronize()
        if steps % 400 == 0:
            mean = torch.stack(losses).mean().item()
            losses.clear()
            tokens = steps * args.rows * args.length / 1e6
            log(
                f"step {steps} {tokens:.0f} M tokens {done:.2f} loss {mean:.4f} index "
                f"{index_loss.item():.3f} norm {norm.item():.3f} epochs {corpus.epoch} {chat.epoch}"
            )
    tokens = steps * args.rows * args.length
    log(
        f"{steps} steps, {tokens / 1e6:.1f} M tokens, {tokens / seconds / 1e3:.0f} k tokens/s, "
        f"{chat_rows} chat rows, epochs {corpus.epoch} {chat.epoch}"
    )
    save_weights(trainer.target.named(), args.out, "target", 2)
    log("saved")
    named = load_weights(args.out, "target", device)
    target = model.from_named(replace(shape), named)
    slice_ids = train[: 60 * args.length + 1].cpu().long()
    report = {"parameters": parameters, "steps": steps, "tokens": tokens, "seconds": seconds}
    for rounding in (True, False):
        name = "fp8" if rounding else "none"
        report[name] = bits_per_byte(target, held, args.length, rounding)
        log(name, {k: round(v, 4) for k, v in report[name].items()})
    nats = bits_per_byte(target, {"train": (slice_ids, 1)}, args.length, True)["train"]
    report["train_nats"] = nats * math.log(2) / len(slice_ids)
    log("training slice, nats per token", report["train_nats"])
    (args.out / "target.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
