"""The embedded pair in llama.cpp itself: its greedy ids, its acceptance and its speed beside ours.

Exports the pair in llama.cpp's dialect, as F32 and as quantised, and gives llama-server the prompts
as token ids, plain and with the drafter. Its ids are compared with our plain decode as `ds4tui ab
--against` does. Speed is measured in rounds, every program once per round. The tables go into
`benchmarks/llama_cpp.md`, which says how to build llama.cpp.

    python benchmarks/llama_cpp.py BIN_FOLDER [--tokens 200] [--prompts 5] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prompt_sets
from page import head, machine, row, write

from ds4tui import options, report
from engine.events import PromptRendered
from engine.export import Form, export_pair
from engine.gguf import open_gguf
from engine.prompt_set import PromptEntry
from engine.session import Engine, load_engine
from engine.settings import EngineFiles, Knobs, Prompt, Recorded, RunRequest, Settings

PAGE = Path(__file__).parent / "llama_cpp.md"
Document = dict[str, Any]
EXACT = ("-fa", "off", "-ctk", "f32", "-ctv", "f32")
"""Attention in F32 with F32 caches: nothing of llama.cpp's is rounded but the matrix products."""
DRAFT = ("--spec-type", "draft-dspark", "--spec-draft-n-max", "5", "--spec-draft-p-min", "0")
EXACT_DRAFT = ("-ctkd", "f32", "-ctvd", "f32")
STARTUP_S = 60
FORMS: dict[Form, str] = {"f32": "F32", "quantised": "as quantised"}


@dataclass(frozen=True)
class Answer:
    """What llama-server said to one prompt."""

    ids: tuple[int, ...]
    drafted: int
    accepted: int
    tokens_per_s: float

    @property
    def depth(self) -> float:
        """Tokens per step of the target."""
        made = len(self.ids) - 1  # the first id comes from the prefill
        return made / max(1, made - self.accepted)


class Server:
    """A running llama-server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def complete(self, ids: Sequence[int], tokens: int) -> Answer:
        """Greedy continuation of a prompt of ids."""
        body = {
            "prompt": list(ids),
            "n_predict": tokens,
            "temperature": 0,
            "top_k": 1,
            "ignore_eos": True,
            "cache_prompt": False,
            "return_tokens": True,
        }
        data = json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._url}/completion", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            found = json.load(reply)
        timings = found["timings"]
        return Answer(
            tuple(found["tokens"]),
            timings.get("draft_n", 0),
            timings.get("draft_n_accepted", 0),
            timings["predicted_per_second"],
        )


@contextmanager
def server(binaries: Path, target: Path, *more: str) -> Iterator[Server]:
    """A llama-server on a free port, until it is left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(binaries / "llama-server"), "-m", str(target), "-c", "2048", "-np", "1", "-ngl", "0",
        "--host", "127.0.0.1", "--port", str(port), *more,
    ]  # fmt: skip
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(binaries))
        try:
            _wait(process, f"http://127.0.0.1:{port}", log)
            yield Server(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait()


def _environment(binaries: Path) -> dict[str, str]:
    return dict(os.environ) | {"LD_LIBRARY_PATH": str(binaries)}


def _wait(process: subprocess.Popen[bytes], url: str, log: Any) -> None:
    end = time.monotonic() + STARTUP_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    log.seek(0)
    tail = log.read()[-2000:].decode(errors="replace")
    raise SystemExit(f"llama-server did not start:\n{tail}")


def bench_rate(binaries: Path, target: Path, threads: int, tokens: int) -> float:
    """Tokens per second of one llama-bench decode from an empty context."""
    command = [
        str(binaries / "llama-bench"), "-m", str(target), "-p", "0", "-n", str(tokens), "-r", "1",
        "-t", str(threads), "-ngl", "0", "-o", "json",
    ]  # fmt: skip
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=_environment(binaries)
    )
    return float(json.loads(done.stdout)[0]["avg_ts"])


class Ours:
    """This engine on one pair of files."""

    def __init__(self, target: str, drafter: str, kv_rounding: Any) -> None:
        self._engine: Engine = load_engine(EngineFiles(target, (drafter,), kv_rounding=kv_rounding))

    def prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        """What a prompt becomes."""
        events = self._engine.render(prompt)
        return next(event.prompt_ids for event in events if isinstance(event, PromptRendered))

    def run(
        self,
        prompt: Prompt,
        tokens: int,
        arms: tuple[Knobs, ...] = (),
        against: tuple[Recorded, ...] = (),
        numerics: Any = "invariant",
        no_repeat: int | None = 0,
    ) -> Document:
        """The `ds4tui ab` document of one prompt."""
        settings = Settings(
            numerics,
            arms,
            tokens,
            ignore_eos=True,
            no_repeat=no_repeat,
            digest_every=0,
        )
        events = list(self._engine.run(RunRequest(prompt, settings, against=against)))
        return report.ab_document([report.RunEvents.of(events)])


FORCED = Knobs("prefix", 0.0)


def compare(
    binaries: Path, files: Sequence[Path], prompts: Sequence[PromptEntry], tokens: int
) -> list[str]:
    """Markdown of the greedy ids of one form of the pair."""
    target, drafter = files
    ours = Ours(str(target), str(drafter), "none")
    rows, parted = [], []
    with ExitStack() as stack:
        plain = stack.enter_context(server(binaries, target, "-t", "1", *EXACT))
        drafted = stack.enter_context(
            server(binaries, target, "-md", str(drafter), "-t", "1", *EXACT, *DRAFT, *EXACT_DRAFT)
        )
        for entry in prompts:
            ids = ours.prompt_ids(entry.prompt)
            answers = (plain.complete(ids, tokens), drafted.complete(ids, tokens))
            recorded = tuple(
                Recorded(name, answer.ids, ids)
                for name, answer in zip(("plain", "DSpark"), answers, strict=True)
            )
            document = ours.run(entry.prompt, tokens, (FORCED,), recorded)
            own, spec, *theirs = document["arms"]
            rows.append(
                row(
                    entry.id,
                    own["ids_sha256"][:8],
                    *(_same(arm) for arm in (*theirs, spec)),
                    f"{spec['mean_depth']:.2f}",
                    f"{answers[1].depth:.2f}",
                    f"{spec['accepted_draft']}/{spec['proposed']}",
                    f"{answers[1].accepted}/{answers[1].drafted}",
                )
            )
            parted += [_parting(entry.id, arm) for arm in theirs if arm["first_divergence"]]
    table = [
        *head(
            "prompt", "our plain ids", "llama.cpp plain", "llama.cpp DSpark", "our DSpark",
            "our depth", "its depth", "our accepted", "its accepted",
        ),
        *rows,
    ]  # fmt: skip
    if parted:
        table += ["", "Where ids part (margin = lead of our token in our plain logits):", ""]
    return [*table, *parted]


def _same(arm: Document) -> str:
    found = arm["first_divergence"]
    return "identical" if found is None else f"parts at {found['index']}"


def _parting(prompt: str, arm: Document) -> str:
    found = arm["first_divergence"]
    left, right = (found[side]["text"] for side in ("left", "right"))
    return (
        f"- {prompt}, llama.cpp {arm['name'].removeprefix('recorded ')}: token {found['index']}, "
        f"ours {left!r}, its {right!r}, margin {found['margin_logits']:.3g} logits"
    )


def speed(
    binaries: Path,
    files: Sequence[Path],
    prompts: Sequence[PromptEntry],
    tokens: int,
    rounds: int,
) -> list[str]:
    """Markdown of the speeds of the quantised pair: every program once per round."""
    target, drafter = files
    own_target, (own_drafter,), _ = options.model_files(None, None)
    ours = Ours(own_target, own_drafter, "none")
    rates: dict[str, list[float]] = {}
    hashes: dict[str, list[str]] = {}

    def note(name: str, rate: float, ids_sha256: str = "") -> None:
        rates.setdefault(name, []).append(rate)
        hashes.setdefault(name, []).append(ids_sha256[:8])

    with ExitStack() as stack:
        servers = {}
        for threads in (1, 2):
            common = ("-t", str(threads), "-td", str(threads))
            servers[f"llama-server, plain, {_counted(threads)}"] = stack.enter_context(
                server(binaries, target, *common[:2])
            )
            servers[f"llama-server, DSpark, {_counted(threads)}"] = stack.enter_context(
                server(binaries, target, "-md", str(drafter), *common, *DRAFT)
            )
        for turn in range(rounds):
            entry = prompts[turn % len(prompts)]
            ids = ours.prompt_ids(entry.prompt)
            for threads in (1, 2):
                rate = bench_rate(binaries, target, threads, tokens)
                note(f"llama-bench, plain, {_counted(threads)}", rate)
            for name, running in servers.items():
                answer = running.complete(ids, tokens)
                note(name, answer.tokens_per_s, report.stats.ids_sha256(answer.ids))
            for numerics in ("split", "invariant"):
                arms = (FORCED, Knobs("prefix")) if numerics == "invariant" else ()
                document = ours.run(entry.prompt, tokens, arms, (), numerics)
                for arm, label in zip(
                    document["arms"],
                    ("plain", "DSpark, no gate", "DSpark, default gate"),
                    strict=False,
                ):
                    name = f"ds4tui {numerics}, {label}, 1 thread"
                    note(name, arm["tokens_per_s"], arm["ids_sha256"])
    base = "ds4tui split, plain, 1 thread"
    lines = head(
        "program", "tokens/s, median", "least", "most", "times our plain", "ids of the rounds"
    )
    for name, found in sorted(rates.items()):
        ratio = statistics.median(a / b for a, b in zip(found, rates[base], strict=True))
        values = (statistics.median(found), min(found), max(found))
        lines.append(
            row(
                name,
                *(f"{value:.0f}" for value in values),
                f"{ratio:.2f}",
                " ".join(hashes[name]).strip() or "random tokens",
            )
        )
    return lines


def _counted(threads: int) -> str:
    return f"{threads} thread" + "s" * (threads > 1)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("binaries", type=Path, help="folder of llama-server and llama-bench")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=5, help="of the demo set")
    parser.add_argument("--rounds", type=int, default=5, help="of the speed comparison")
    parser.add_argument("--only", choices=("ids", "speed"), help="one part of the page")
    arguments = parser.parse_args()
    demo = prompt_sets.prompts(prompt_sets.DEMO)
    prompts = demo[:: max(1, len(demo) // arguments.prompts)][: arguments.prompts]
    target, (drafter,), _ = options.model_files(None, None)
    measured = (
        f"`python benchmarks/llama_cpp.py BIN_FOLDER --tokens {arguments.tokens} --prompts "
        f"{arguments.prompts} --rounds {arguments.rounds}` on {machine()}."
    )
    with tempfile.TemporaryDirectory(prefix="ds4tui-llama-") as folder:
        pairs = {
            form: [
                file.path
                for file in export_pair(
                    open_gguf(target), open_gguf(drafter), Path(folder), form=form
                )
            ]
            for form in FORMS
        }
        if arguments.only != "speed":
            lines = [measured]
            for form, files in pairs.items():
                lines += ["", f"### Greedy ids, {FORMS[form]}", ""]
                lines += compare(arguments.binaries, files, prompts, arguments.tokens)
            write(PAGE, "ids", lines)
        if arguments.only != "ids":
            lines = [measured, "", "### Speed, as quantised", ""]
            rounds = arguments.rounds
            lines += speed(
                arguments.binaries, pairs["quantised"], prompts, arguments.tokens, rounds
            )
            write(PAGE, "speed", lines)


if __name__ == "__main__":
    main()
