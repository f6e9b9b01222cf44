"""A short matrix of the embedded pair, from the command line to the exit code."""

from __future__ import annotations

import json
from pathlib import Path

from ds4tui import cli


def test_a_short_matrix_of_the_embedded_pair_is_as_required(tmp_path: Path) -> None:
    """Every cell that must be identical is, with equal states after every cycle."""
    prompts, out = tmp_path / "prompts.txt", tmp_path / "matrix.json"
    prompts.write_text("Explain the TCP three-way handshake.\nWhat is a mutex?\n", encoding="utf-8")
    words = ["matrix", "--prompts", str(prompts), "-n", "40", "--ignore-eos", "--json", str(out)]
    code = cli.main([*words, "--dspark-confidence", "0", "--dspark-confidence", "0.9"])
    found = json.loads(out.read_text(encoding="utf-8"))
    assert code == 0
    assert found["as_required"] is True
    required = [cell for cell in found["cells"] if cell["must_be_identical"]]
    assert len(required) == 9 + 3
    for cell in required:
        assert (cell["identical"], cell["state_equal"]) == (2, True), cell["name"]
        assert cell["compared"] == cell["cycles"] + 2
    depths = {cell["name"]: cell["mean_depth"] for cell in found["cells"]}
    assert depths["invariant prefix confidence 0"] > 1.5
    assert not any(cell["logic_errors"] for cell in found["cells"])
