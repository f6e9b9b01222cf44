"""What the tool is for, on the real kernels: `split` with `direct` parts, and `ab` says so."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from ds4tui import cli

PROMPTS = ("virtual-memory", "python-stack", "http-server", "story")
"""Demo prompts that go on for long. Which of them part hangs on near-ties, so on the machine."""


def test_some_demo_prompt_parts_under_the_default_policy(tmp_path: Path) -> None:
    demo = (resources.files("ds4tui") / "prompts" / "demo.jsonl").read_text(encoding="utf-8")
    lines = [line for line in demo.splitlines() if json.loads(line)["id"] in PROMPTS]
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.json"
    prompts.write_text("\n".join(lines), encoding="utf-8")
    words = ["--prompts", str(prompts), "--json", str(out), "-n", "400"]
    code = cli.main(["ab", *words, "--numerics", "split", "--dspark-confidence", "0"])
    found = json.loads(out.read_text())
    assert code == 1
    assert found["summary"]["diverged"] >= 1
    assert len(found["runs"]) == len(PROMPTS)
    for run in found["runs"]:
        plain, direct = (arm["ids"] for arm in run["arms"])
        parted = run["first_divergence"]
        if parted is None:
            assert direct == plain
            continue
        index = parted["index"]
        assert plain[:index] == direct[:index]
        assert (parted["left"]["id"], parted["right"]["id"]) == (plain[index], direct[index])
        assert parted["cause"] in ("state", "verify_row")
        assert parted["logic_error"] is False
