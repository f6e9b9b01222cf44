"""From text to token files: tokenizer, held-out split, shared n-grams removed, chat rows.

Owns what counts as held out and how the chat part is built. Reads `text.jsonl` of `corpus.py`
and the chat questions; writes DATA/train.xz (uint16), DATA/held.npz, DATA/chat.npz,
DATA/questions.json, DATA/tokenizer.json and DATA/prompts.json. Knows nothing of training.

    python -m tools.tiny_model.tokens WORK DATA
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tools.tiny_model import tokenizer as tok
from tools.tiny_model.chat.expand import expand, load_questions

HERE = Path(__file__).parent
PROMPTS = {
    "demo": HERE.parents[1] / "ds4tui" / "prompts" / "demo.jsonl",
    "held": HERE / "heldout_prompts.jsonl",
}
HELD_SHARE = 0.012
"""Share of the pieces that are held out."""
PIECE = 20_000
"""Long documents are cut into pieces of about so many characters before the split."""
NGRAM = 13
"""Training paragraphs that share so many tokens in a row with held-out text are dropped."""
TRAIN_EVERY = 5
"""The tokenizer is trained on every fifth document."""
VARIANTS = 48
"""Answers a wording; a multiple of 12 keeps the alternatives of a skeleton equally frequent."""
TERMS = 600
"""Dictionary definitions in the chat part."""
OPEN_TEMPLATES = (
    "What is {0}?",
    "How do I use {0}?",
    "Explain {0}.",
    "How does {0} work?",
    "Tell me about {0}.",
    "What are the main points of {0}?",
    "Why would I need {0}?",
    "Give an example of {0}.",
    "How can I configure {0}?",
    "What should I know about {0}?",
    "{0}",
)
OPEN_QUESTIONS = 8000
"""Questions without a trained answer, made of headings, that the target answers for the drafter."""
TEMPLATES = ("What is {0}?", "Define {0}.", "What does {0} mean?", "{0}", "Explain the word {0}.")


def pieces(text: str) -> Iterator[str]:
    """Cuts at blank lines into pieces of about PIECE characters."""
    while len(text) > 1.5 * PIECE:
        cut = text.find("\n\n", PIECE)
        if cut < 0:
            break
        yield text[:cut]
        text = text[cut + 2 :]
    yield text


def is_held(name: str) -> bool:
    return int.from_bytes(hashlib.md5(name.encode()).digest()[:4], "big") < HELD_SHARE * 2**32


def hashes(ids: np.ndarray) -> np.ndarray:
    """(n - NGRAM + 1,) uint64 hashes of all runs of NGRAM tokens."""
    rng = np.random.default_rng(3)
    factors = rng.integers(1, 2**63, NGRAM, dtype=np.uint64) | np.uint64(1)
    out = np.zeros(max(0, len(ids) - NGRAM + 1), np.uint64)
    wide = ids.astype(np.uint64) + np.uint64(1)
    for j, factor in enumerate(factors):
        out += wide[j : j + len(out)] * factor
    return out ^ (out >> np.uint64(29))


def shared(ids: np.ndarray, held: np.ndarray, chunk: int = 4_000_000) -> np.ndarray:
    """Mask of the tokens inside a run that is also in `held`, a sorted array of hashes."""
    mask = np.zeros(len(ids) + 1, np.int32)
    for start in range(0, len(ids), chunk):
        h = hashes(ids[start : start + chunk + NGRAM - 1])
        at = np.searchsorted(held, h)
        at[at == len(held)] = 0
        hits = np.flatnonzero(held[at] == h) + start
        np.add.at(mask, hits, 1)
        np.add.at(mask, np.minimum(hits + NGRAM, len(ids)), -1)
    return np.cumsum(mask)[:-1] > 0


def drop_paragraphs(ids: np.ndarray, bad: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """`ids` without the paragraphs that hold a bad token; `ends[v]` says token v ends one."""
    paragraph = np.concatenate([[0], np.cumsum(ends[ids])[:-1]])
    dirty = np.zeros(paragraph[-1] + 1, bool)
    dirty[paragraph[bad]] = True
    return ids[~dirty[paragraph]]


def definitions(work: Path) -> list[tuple[str, str]]:
    """(term, gloss) of the dictionary's one-word nouns that the text uses most."""
    glosses: dict[str, str] = {}
    counts: Counter[str] = Counter()
    with (work / "text.jsonl").open() as lines:
        for i, line in enumerate(lines):
            document = json.loads(line)
            if document["kind"] == "dictionary" and document["name"].startswith("data.noun"):
                for entry in document["text"].split("\n\n"):
                    match = re.match(r"([a-z]{4,})(?:, [^(]*)? \(noun\): ([^;]{20,160})", entry)
                    if match:
                        glosses.setdefault(match[1], match[2].strip(" ."))
            elif i % 10 == 0:
                counts.update(re.findall(r"[a-z]{4,}", document["text"]))
    terms = sorted(glosses, key=lambda term: -counts[term])[:TERMS]
    return [(term, glosses[term]) for term in terms]


def chat_examples(work: Path) -> list[tuple[str, str]]:
    """(question, answer) pairs: every wording and every alternative equally often."""
    rng = random.Random(11)
    examples = []
    for entry in load_questions():
        for i, wording in enumerate(entry["questions"]):
            examples += [(wording, a) for a in expand(entry["skeleton"], VARIANTS, seed=i)]
    for term, gloss in definitions(work):
        article = "an" if term[0] in "aeiou" else "a"
        answer = f"The word {term} stands for {gloss}."
        for template in TEMPLATES:
            examples.append((template.format(rng.choice((term, f"{article} {term}"))), answer))
    return examples


def open_questions(titles: list[str]) -> list[str]:
    """Questions about the headings of documents."""
    rng = random.Random(17)
    chosen = rng.sample(sorted(set(titles)), min(OPEN_QUESTIONS, len(set(titles))))
    return [rng.choice(OPEN_TEMPLATES).format(title) for title in chosen]


def read_prompts(tokenizer: tok.Tokenizer) -> dict[str, list[dict[str, object]]]:
    found = {}
    for name, path in PROMPTS.items():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            row["ids"] = tok.prompt_ids(tokenizer, row["text"], row["chat"])
        found[name] = rows
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("data", type=Path)
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    chat = chat_examples(args.work)

    def lines() -> Iterator[dict[str, str]]:
        with (args.work / "text.jsonl").open() as file:
            yield from map(json.loads, file)

    sample = (d["text"] for i, d in enumerate(lines()) if i % TRAIN_EVERY == 0)
    answers = (answer for _, answer in chat[::24])
    tokenizer = tok.train((t for source in (sample, answers) for t in source), 8192)
    tokenizer.save(str(args.data / "tokenizer.json"))
    print("tokenizer", tokenizer.get_vocab_size())

    train: list[np.ndarray] = []
    held: dict[str, list[np.ndarray]] = {}
    sizes: dict[str, int] = Counter()
    batch: list[tuple[str, str, bool]] = []
    titles: list[str] = []

    def flush() -> None:
        codes = tokenizer.encode_batch_fast(
            [text for _, text, _ in batch], add_special_tokens=False
        )
        for (kind, text, out), code in zip(batch, codes, strict=True):
            ids = np.array([tok.BOS, *code.ids, tok.EOS], np.uint16)
            if out:
                held.setdefault(kind, []).append(ids)
                sizes[kind] += len(text.encode())
            else:
                train.append(ids)
        batch.clear()

    for document in lines():
        title = document["text"].split("\n", 1)[0].strip(" #")
        if document["kind"] == "docs" and re.fullmatch(r"[A-Z][A-Za-z0-9 ,'()-]{7,59}", title):
            titles.append(title)
        for i, text in enumerate(pieces(document["text"])):
            out = is_held(f"{document['source']}/{document['name']}/{i}")
            batch.append((document["kind"], text, out))
        if len(batch) > 2000:
            flush()
    flush()
    np.random.default_rng(5).shuffle(train)
    ids = np.concatenate(train)
    print(f"train {len(ids) / 1e6:.2f} M tokens in {len(train)} pieces")

    prompts = read_prompts(tokenizer)
    outside = [a for parts in held.values() for a in parts]
    outside += [np.array(row["ids"], np.uint16) for row in prompts["held"]]
    keys = np.unique(np.concatenate([hashes(a) for a in outside]))
    ends = np.zeros(8192, bool)
    for v in range(8192):
        ends[v] = v <= tok.EOS or (tokenizer.id_to_token(v) or "").count("Ċ") >= 2
    clean = ids
    while (bad := shared(clean, keys)).any():  # paragraphs that come together may share anew
        clean = drop_paragraphs(clean, bad, ends)
    print(f"dropped for shared {NGRAM}-grams: {1 - len(clean) / len(ids):.4f}")
    examples = [
        np.array([*tok.chat_prompt(tokenizer, q), *tok.encode(tokenizer, a), tok.EOS], np.uint16)
        for q, a in chat
    ]
    print(f"chat {len(examples)} turns, {sum(map(len, examples)) / 1e6:.2f} M tokens")
    np.savez_compressed(
        args.data / "chat.npz",
        ids=np.concatenate(examples),
        starts=np.cumsum([0] + [len(e) for e in examples]).astype(np.int64),
    )
    asked = [tok.chat_prompt(tokenizer, question) for question in open_questions(titles)]
    (args.data / "questions.json").write_text(json.dumps(asked))
    np.savez_compressed(
        args.data / "held.npz",
        **{k: np.concatenate(v) for k, v in held.items()},
        **{f"{k}_bytes": np.array(sizes[k]) for k in held},
    )
    for kind, parts in held.items():
        count = sum(map(len, parts))
        print(f"held out {kind}: {sizes[kind] / 1e6:.2f} MB, {count / 1e6:.3f} M tokens")
    (args.data / "prompts.json").write_text(json.dumps(prompts))
    packed = lzma.compress(clean.tobytes(), preset=4)
    (args.data / "train.xz").write_bytes(packed)
    print(f"train {len(clean) / 1e6:.2f} M tokens, {len(packed) / 1e6:.1f} MB packed")


if __name__ == "__main__":
    main()
