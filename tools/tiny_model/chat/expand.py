"""Expands the skeletons of the chat answers into variants.

A skeleton is prose with places of the form ``{one|another|a third}``; no nesting, no escapes. A
variant picks one alternative at each place. Every alternative is picked equally often, to within
one, and independently of the other places, so a model trained on many variants meets a near-tie
at each place whatever it chose before. With few variants (3 or 4) the first choice would give the
rest away: expand to 48 or more, or to a multiple of 12, the least common multiple of the numbers
of alternatives.

Does not own the texts (`questions.jsonl`) or how often the training mixes them in.

    python tools/tiny_model/chat/expand.py [--show ID] [-n N] [--seed S]
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

QUESTIONS = Path(__file__).with_name("questions.jsonl")
_PLACE = re.compile(r"\{([^{}]*)\}")


def alternatives(skeleton: str) -> list[list[str]]:
    """The alternatives of each place, in the order of the text."""
    return [place.split("|") for place in _PLACE.findall(skeleton)]


def expand(skeleton: str, n: int, seed: int) -> list[str]:
    """`n` variants of a skeleton, the same ones for the same arguments.

    Each alternative occurs n/k times, rounded down or up, at a place with k of them. Variants may
    be equal when n comes near the number of combinations.
    """
    rng = random.Random(seed)
    columns: list[list[str]] = []
    for options in alternatives(skeleton):
        order = rng.sample(options, len(options))
        column = [order[i % len(order)] for i in range(n)]
        rng.shuffle(column)
        columns.append(column)
    fixed = _PLACE.split(skeleton)[0::2]
    variants: list[str] = []
    for row in range(n):
        parts = [fixed[0]]
        for column, text in zip(columns, fixed[1:], strict=True):
            parts += (column[row], text)
        variants.append("".join(parts))
    return variants


def load_questions(path: Path = QUESTIONS) -> list[dict[str, object]]:
    """The entries of `questions.jsonl`: id, category, questions (wordings), skeleton."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Prints one line of statistics per subject, or the variants of one subject."""
    parser = argparse.ArgumentParser(description="Expand the chat answers and count.")
    parser.add_argument("-n", type=int, default=48, help="variants per subject (default 48)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", metavar="ID", help="print the variants of this subject")
    args = parser.parse_args()
    entries = load_questions()
    if args.show:
        chosen = [entry for entry in entries if entry["id"] == args.show]
        if not chosen:
            parser.error(f"no subject {args.show!r} in {QUESTIONS.name}")
        print("\n\n---\n\n".join(expand(str(chosen[0]["skeleton"]), args.n, args.seed)))
        return
    print(f"{'id':20}{'category':10}{'wordings':>9}{'places':>7}{'words':>10}{'distinct':>9}")
    for entry in entries:
        skeleton, wordings = str(entry["skeleton"]), entry["questions"]
        assert isinstance(wordings, list)
        variants = expand(skeleton, args.n, args.seed)
        words = [len(text.split()) for text in variants]
        print(
            f"{entry['id']:20}{entry['category']:10}{len(wordings):9}"
            f"{len(alternatives(skeleton)):7}{f'{min(words)}-{max(words)}':>10}"
            f"{len(set(variants)):9}"
        )


if __name__ == "__main__":
    main()
