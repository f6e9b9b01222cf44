"""Which tokens a drafter drafts: those that are frequent in what its target was trained to write.

A token that is missing is never drafted, so it costs depth where the target wants it, and every row
of the head costs time in every draft.
Source: frequency-ranked draft vocabularies (FR-Spec, Zhao et al. 2025).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tools.tiny_model.tokenizer import EOS, SPECIAL

CHAT_SHARE = 0.35
"""Weight of the chat turns' frequencies beside the corpus's, as in the rows that drafters are
trained on (`generate.py`): answers to trained and to open questions."""


def most_frequent(corpus: Tensor, chat: Tensor, vocab: int, size: int) -> Tensor:
    """The tokens to draft, (size,) int64, rising; the end token always, no other special one.

    Args:
        corpus, chat: token ids of the two kinds of training text.
        vocab: tokens in all.
    """
    share = CHAT_SHARE * _shares(chat, vocab) + (1 - CHAT_SHARE) * _shares(corpus, vocab)
    share[: len(SPECIAL)] = -1
    share[EOS] = 1
    return share.argsort(descending=True, stable=True)[:size].sort().values


def _shares(ids: Tensor, vocab: int) -> Tensor:
    return torch.bincount(ids, minlength=vocab).double() / len(ids)
