"""The command line: commands, options, exit codes.

Imports nothing heavy, so that --help, --version and a mistyped option are answered at once.
Standard input is never read.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ds4tui import __version__, interrupts, options
from engine.errors import Ds4Error
from engine.paths import OP_CLASSES
from engine.text import visible

_WHAT = """\
Plain greedy decode and DSpark speculative decode of a DeepSeek-V4 model, side by side: whether the
text is the same, where it parts and why, how deep drafts are accepted, and what it costs."""

_COMMANDS = """\
commands:
  run              open the interface (the default; `ds4tui` alone runs the embedded pair)
  ab               compare headless: table, JSON, exit code
  matrix           every numerics and commit policy over a set of prompts
  bench            what prefill, decode, verify, draft and commit cost here
  inspect FILE...  what is in a model file, and whether target and drafter fit
  replay TRACE     open a recorded run in the interface
  export           write the pair as llama.cpp's files
  config path|show where the configuration is, and what is in force

`ds4tui COMMAND --help` lists a command's options."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise Ds4Error("Usage", f"{message[:1].upper()}{message[1:]}.", f"See {self.prog} --help.")

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse does it, but where the output cannot take the help, that is an error."""
        (file or sys.stderr).write(message)


class _Once(argparse.Action):
    """Refuses an option that is given again, where the last value would win silently."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            raise Ds4Error(
                "Contradictory options",
                f"{option_string} was given twice, {getattr(namespace, self.dest)} and {values}; "
                "only ds4tui matrix takes several.",
                "Give an --arm confidence=F for each.",
            )
        setattr(namespace, self.dest, values)


def _parser(command: str, description: str, epilog: str = "") -> _Parser:
    return _Parser(
        prog=f"ds4tui {command}".strip(),
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that loads a model."""
    parser.set_defaults(**options.DEFAULTS)
    add = parser.add_argument_group("model").add_argument
    add("-m", "--model", metavar="F.gguf", help="target (default: the embedded pair)")
    add("--mtp", metavar="F.gguf", help="DSpark drafter of the target given with -m")
    add("--ctx", metavar="N", help="context in tokens (default: the file's, at most 8192)")
    add("--threads", metavar="N", help="CPU threads (default 1)")
    add("--device", metavar="cpu|cuda", help="where to compute (default cpu)")
    add("--cuda", action="store_true", help="the same as --device cuda")
    add("--kv-rounding", metavar="fp8|none", help="rounding of stored rows (default fp8, as ds4)")


def _add_run_options(
    parser: argparse.ArgumentParser, confidences: str | type[_Once] = _Once
) -> None:
    """Options that every command that runs prompts has; `confidences` is argparse's action."""
    _add_model_options(parser)
    add = parser.add_argument_group("prompt").add_argument
    add("-p", "--prompt", metavar="TEXT", help="the prompt")
    add("--prompt-file", metavar="F", help="a file that holds the prompt")
    add("--prompts", metavar="SET", help="demo, set20, or a file: a prompt or JSON object a line")
    add("--system", metavar="TEXT", help="system prompt")
    add("--no-chat", action="store_true", help="give the prompt as raw text")
    add("--think", action="store_true", help="let the model think first")
    add("--control-tokens", action="store_true", help="control tokens in the prompt's text act")
    add = parser.add_argument_group("decode").add_argument
    add("-n", "--max-tokens", metavar="N", help="most tokens, 1 or more (default 400)")
    add("--ignore-eos", action="store_true", help="never choose the end token, in any arm")
    add("--temp", dest="temperature", metavar="0", help="only 0: decoding is greedy")
    add("--numerics", metavar="split|invariant", help="pairing of kernels (default split, as ds4)")
    add("--no-repeat", metavar="N", help="no N-gram twice, 0 = off (default: the target's own)")
    add("--seed", metavar="N", help="seed of --perturb (default 0)")
    add = parser.add_argument_group("DSpark").add_argument
    add("--commit", action="append", metavar="POLICY", help="direct (default), prefix, reproject, "
        "replay or strict")  # fmt: skip
    add("--dspark", action="store_true", help="accepted for ds4's command lines; always on")
    add("--dspark-strict", action="store_true", help="the same as --commit strict")
    add("--dspark-confidence", dest="confidence", action=confidences, metavar="F",
        help="threshold, 0 = no gate (default: the drafter's own)")  # fmt: skip
    add("--arm", action="append", default=[], metavar="SPEC", help="one DSpark arm: a comma list "
        "of commit=, confidence=, draft-max=, mtp=FILE")  # fmt: skip
    add("--draft-max", metavar="N", help="most drafts of a block")
    add("--no-markov", action="store_true", help="leave out the drafter's Markov bias")
    add = parser.add_argument_group("diagnosis").add_argument
    add("--batch-ops", metavar="CLASSES", help="op classes that a split verify batches, a comma "
        f"list (default: all of {', '.join(OP_CLASSES)})")  # fmt: skip
    add("--pin", metavar="router,indexer", help="verifies take these choices from plain decode")
    add("--perturb", metavar="CLASS:ULPS", help="fault injection into verifies")
    add("--digests", metavar="N", help="compare the states, bit by bit, at every N-th common "
        "boundary of the arms, 0 = never (default 1, with a large target 16)")  # fmt: skip
    add("--near-tie", metavar="ULPS", help="largest margin called a near-tie (default 32)")
    add("--trace", metavar="FILE", help="write every event as JSON lines")


def _run_parser() -> _Parser:
    parser = _parser("", _WHAT, _COMMANDS)
    parser.add_argument("--version", action="version", version=f"ds4tui {__version__}")
    _add_run_options(parser)
    _add_ui_options(parser)
    return parser


def _add_ui_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("interface").add_argument
    add("--ascii", action="store_true", help="draw with ASCII only")
    add("--config", metavar="FILE", help="configuration file")


def _ab_parser() -> _Parser:
    parser = _parser(
        "ab",
        "Compare plain decode with DSpark arms, headless; --commit and --arm may repeat, one arm "
        "each.\n"
        "Exit code 0: all identical, 1: an arm diverged, 2: an error, or the verdict is withheld.",
    )
    _add_run_options(parser)
    add = parser.add_argument_group("comparison").add_argument
    add("--controls", action="store_true", help="run every arm twice")
    add("--repeat", default="1", metavar="N", help="run N times; ids must agree, speed is the "
        "median")  # fmt: skip
    add("--against", action="append", default=[], metavar="IDS.json", help="recorded ids to "
        "compare plain decode with")  # fmt: skip
    add("--json", metavar="FILE", help="write the result as JSON, - = standard output")
    add("--report", metavar="FILE.md", help="write the result as Markdown")
    return parser


def _matrix_parser() -> _Parser:
    parser = _parser(
        "matrix",
        "Every numerics and commit policy over the lines of --prompts (default: the demo set).\n"
        "--dspark-confidence may repeat, and every --arm is run by every policy; --numerics and\n"
        "--commit, which may repeat, restrict the cells. Exit code 0: every cell that must be\n"
        "identical is, with equal states wherever they were compared (--digests), 1: one is not,\n"
        "2: an error, or the verdict is withheld.",
    )
    _add_run_options(parser, confidences="append")
    parser.set_defaults(numerics=None)
    add = parser.add_argument_group("matrix").add_argument
    add("--json", metavar="FILE", help="write the result as JSON, - = standard output")
    add("--report", metavar="FILE.md", help="write the result as Markdown")
    return parser


def _bench_parser() -> _Parser:
    parser = _parser(
        "bench",
        "What prefill, decode, verify, draft and commit cost on this machine: medians, quartiles\n"
        "and best of interleaved turns, beside the bytes that a decode must read and the time\n"
        "that this memory needs for them.",
    )
    _add_model_options(parser)
    parser.set_defaults(**dict.fromkeys(options.DEFAULTS))  # --synthetic refuses what is given
    add = parser.add_argument_group("bench").add_argument
    add("--numerics", metavar="split|invariant", help="pairing of kernels (default split, as ds4)")
    add("--commit", metavar="POLICY", help="policy whose commits are measured (default direct)")
    add("--depths", metavar="P1,P2", help="tokens before the steps (default 512); with "
        "--synthetic, shares of the accepted depths 1, 2, ... (default: mean 3.3)")  # fmt: skip
    add("--synthetic", metavar="NAME", help="measure a full-size model of random weights on the "
        "GPU instead of files: v4-flash-q2")  # fmt: skip
    add("--layers", metavar="N", help="layers of the synthetic model (default 43)")
    add("--repeat", default="30", metavar="N", help="turns (default 30)")
    add("--seed", metavar="N", help="seed of the tokens and of the order of the steps (default 0)")
    add("--json", metavar="FILE", help="write the result as JSON, - = standard output")
    return parser


def _interface(found: options.RunOptions) -> int:
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise Ds4Error(
            "No terminal",
            "The interface needs a terminal, and at least one of input, output and error output is "
            "none.",
            "Use ds4tui ab for headless comparisons.",
        )
    from ds4tui.output import can_draw

    if not can_draw(sys.stdout):
        raise Ds4Error(
            "No terminal",
            "The terminal calls itself dumb (TERM=dumb), so nothing can be drawn on it.",
            "Use ds4tui ab for headless comparisons, or set TERM to what the terminal is.",
        )
    from ds4tui.app import run_app  # brings in Textual

    with interrupts.raised():
        return run_app(found)


def _run(argv: Sequence[str]) -> int:
    args = _run_parser().parse_args(argv)
    return _interface(options.run_options(args))


def _ab(argv: Sequence[str]) -> int:
    args = _ab_parser().parse_args(argv)
    from ds4tui.ab_command import ab  # brings in rich; it loads the engine itself

    return ab(args)


def _matrix(argv: Sequence[str]) -> int:
    args = _matrix_parser().parse_args(argv)
    from ds4tui.matrix_command import matrix  # brings in rich; it loads the engine itself

    return matrix(args)


def _bench(argv: Sequence[str]) -> int:
    args = _bench_parser().parse_args(argv)
    if args.synthetic is not None:
        from ds4tui.synthetic_command import bench_synthetic  # brings in rich

        return bench_synthetic(args)
    from ds4tui.bench_command import bench  # brings in rich; it loads the engine itself

    return bench(args)


def _replay(argv: Sequence[str]) -> int:
    parser = _parser("replay", "Open a recorded run in the interface.")
    parser.add_argument("trace", metavar="TRACE", help="a file that --trace wrote")
    _add_ui_options(parser)
    args = parser.parse_args(argv)
    return _interface(options.replay_options(args))


def _inspect(argv: Sequence[str]) -> int:
    parser = _parser(
        "inspect",
        "What is in GGUF files, and whether a target and a drafter fit. Exit code 2: a file\n"
        "cannot be run, or a pair does not fit.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a target or a drafter")
    parser.add_argument("--json", metavar="FILE", help="write it as JSON, - = standard output")
    args = parser.parse_args(argv)
    from pathlib import Path

    from ds4tui.inspect import format_report, inspect_files, to_json
    from ds4tui.output import check_writable, write_output

    check_writable(args.json)
    report = inspect_files([Path(name) for name in args.files])
    if args.json is not None:
        write_output(args.json, to_json(report) + "\n")
    if args.json != "-":
        print(format_report(report))
    return 0 if report["ok"] else 2


def _export(argv: Sequence[str]) -> int:
    parser = _parser("export", "Write the pair in llama.cpp's dialect.")
    parser.add_argument("-m", "--model", metavar="F.gguf", help="target (default: the embedded "
        "pair)")  # fmt: skip
    parser.add_argument("--mtp", metavar="F.gguf", help="drafter of the target given with -m")
    parser.add_argument("--out", metavar="DIR", default=".", help="folder (default: this one)")
    parser.add_argument("--f32", action="store_true", help="everything as F32, not as quantised")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    args = parser.parse_args(argv)
    from pathlib import Path

    from ds4tui.output import Progress
    from engine.export import export_pair
    from engine.gguf import open_gguf
    from engine.tensor_table import DRAFTED

    target, drafters, _ = options.model_files(args.model, args.mtp)
    progress = Progress()
    try:
        with interrupts.raised():
            drafter = open_gguf(drafters[0]) if drafters else None
            written = export_pair(
                open_gguf(target),
                drafter,
                Path(args.out),
                form="f32" if args.f32 else "quantised",
                overwrite=args.overwrite,
                progress=lambda name, done, total: progress.show(f"{name} {done}/{total}"),
            )
    finally:
        progress.clear()
    for file in written:
        print(visible(f"{file.role}: {file.path} ({file.size} bytes)"))
    if drafter is not None and DRAFTED in drafter.tensors:
        print(f"The drafter has a draft vocabulary ({DRAFTED}), which llama.cpp's graph of "
            "DeepSeek-V4 blocks does not read yet.")  # fmt: skip
    return 0


def _config(argv: Sequence[str]) -> int:
    parser = _parser("config", "Where the configuration is, and what is in force.")
    parser.add_argument("what", choices=("path", "show"))
    parser.add_argument("--config", metavar="FILE", help="configuration file")
    args = parser.parse_args(argv)
    from ds4tui.config import config_path, load_config, show

    if args.what == "path":
        print(visible(str(config_path(args.config))))
        return 0
    config = load_config(args.config)
    if config.keys:
        from ds4tui.app import key_table  # brings in Textual

        key_table(config.keys)  # refuses what is no action
    print(visible(show(config)))
    return 0


_MAIN: dict[str, Callable[[Sequence[str]], int]] = {
    "run": _run,
    "ab": _ab,
    "matrix": _matrix,
    "bench": _bench,
    "inspect": _inspect,
    "replay": _replay,
    "export": _export,
    "config": _config,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one sentence on standard error and exit code 2.

    Raises:
        KeyboardInterrupt: on ctrl+c; `ds4tui.__main__` answers it.
    """
    if sys.stderr is None:  # closed before the start; what is said there is for nobody
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks our glyphs
    words = list(sys.argv[1:] if argv is None else argv)
    command = words.pop(0) if words and words[0] in _MAIN else "run"
    try:
        if words and not words[0].startswith("-") and command == "run":
            raise Ds4Error(
                "Unknown command",
                f'"{words[0]}" is no command; expected {", ".join(_MAIN)} or an option.',
                "Give a prompt with -p.",
            )
        code = _answer(command, words)
        if sys.stdout is not None:  # None when it was closed before the start
            sys.stdout.flush()
        return code
    except Ds4Error as error:
        print(visible(f"ds4tui: {error}"), file=sys.stderr)
    except BrokenPipeError:  # the reader of our output has gone
        _drop_output()
    except OSError as error:
        _drop_output()
        what = f"{error.filename} cannot be used" if error.filename else "Output cannot be written"
        print(visible(f"ds4tui: {what}: {error.strerror or error}."), file=sys.stderr)
    except Exception:  # a bug of ours; Python's own exit code would say that an arm diverged
        traceback.print_exc()
    return 2


def _answer(command: str, words: Sequence[str]) -> int:
    """What a command returns; argparse leaves after --help, rich when a table's reader has gone."""
    try:
        return _MAIN[command](words)
    except SystemExit as end:
        return 2 if end.code else 0


def _drop_output() -> None:
    """Leave nothing to be flushed into an output that cannot take it."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
