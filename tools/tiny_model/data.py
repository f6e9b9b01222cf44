"""Token files as endless streams of rows on the training device.

Knows nothing of models. `DATA` is the folder that `tokens.py` wrote.
"""

from __future__ import annotations

import json
import lzma
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


class CorpusRows:
    """Rows of `length + 1` tokens from one long array, each token once an epoch, new cuts and a
    new order every epoch."""

    def __init__(self, ids: Tensor, length: int, seed: int) -> None:
        self.ids, self.length = ids, length
        self.rng = torch.Generator().manual_seed(seed)
        self.epoch = -1
        self._shuffle()

    def _shuffle(self) -> None:
        offset = int(torch.randint(0, self.length, (1,), generator=self.rng))
        count = (len(self.ids) - 1 - offset) // self.length
        order = torch.randperm(count, generator=self.rng) * self.length + offset
        self.starts, self.next, self.epoch = order.to(self.ids.device), 0, self.epoch + 1

    def take(self, count: int) -> Tensor:
        """(count, length + 1) int64 tokens."""
        if self.next + count > len(self.starts):
            self._shuffle()
        starts = self.starts[self.next : self.next + count]
        self.next += count
        columns = torch.arange(self.length + 1, device=self.ids.device)
        return self.ids[starts[:, None] + columns].long()


class ChatRows:
    """Rows of `length + 1` tokens of chat turns, packed in a new random order every epoch."""

    def __init__(
        self, ids: np.ndarray, starts: np.ndarray, length: int, seed: int, device: str
    ) -> None:
        self.turns = [ids[a:b] for a, b in pairwise(starts)]
        self.length, self.device = length, device
        self.rng = np.random.default_rng(seed)
        self.epoch = -1
        self._shuffle()

    def _shuffle(self) -> None:
        order = self.rng.permutation(len(self.turns))
        flat = np.concatenate([self.turns[i] for i in order]).astype(np.int64)
        # Every row starts with a turn's beginning or inside one; rows overlap by one token.
        count = (len(flat) - 1) // self.length
        self.rows = torch.from_numpy(
            np.stack([flat[i * self.length : (i + 1) * self.length + 1] for i in range(count)])
        ).to(self.device)
        self.next, self.epoch = 0, self.epoch + 1

    def take(self, count: int) -> Tensor:
        if self.next + count > len(self.rows):
            self._shuffle()
        rows = self.rows[self.next : self.next + count]
        self.next += count
        return rows


def load_train(data: Path, device: str) -> Tensor:
    """All training tokens as one int32 array."""
    raw = lzma.decompress((data / "train.xz").read_bytes())
    return torch.from_numpy(np.frombuffer(raw, np.uint16).astype(np.int32)).to(device)


def load_chat(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of all chat turns and where each begins (and the last ends)."""
    with np.load(data / "chat.npz") as file:
        return file["ids"], file["starts"]


def load_held(data: Path) -> dict[str, tuple[Tensor, int]]:
    """Held-out tokens and their size in bytes, by kind."""
    with np.load(data / "held.npz") as file:
        kinds = [name for name in file.files if not name.endswith("_bytes")]
        return {
            kind: (torch.from_numpy(file[kind].astype(np.int64)), int(file[f"{kind}_bytes"]))
            for kind in kinds
        }


def load_prompts(data: Path) -> dict[str, list[dict]]:
    return json.loads((data / "prompts.json").read_text())


def load_questions(data: Path) -> list[list[int]]:
    return json.loads((data / "questions.json").read_text())
