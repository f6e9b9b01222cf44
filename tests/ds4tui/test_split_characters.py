"""A character over several tokens, at every place of a block's edge: shown once and whole."""

from __future__ import annotations

import pytest

from ds4tui import report
from engine.settings import Knobs
from tests.ds4tui.harness import record_of
from tests.engine.races import engine, run
from tests.engine.scripted import ScriptedDrafter, ScriptedModel, continuation, path_script

TEXT = "\U0001f44d\u6f22\u00e9a"
PIECES = [bytes([byte]) for byte in TEXT.encode()]
"""One byte a token; ten tokens, so that no block length keeps in step with the characters."""
FIRST = 5
TOKENS = 10 * len(PIECES)
IDS = [FIRST + i % len(PIECES) for i in range(TOKENS)]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_every_arm_shows_the_same_whole_text(length: int) -> None:
    script = path_script(IDS, 13)
    made = engine(ScriptedModel(script), ScriptedDrafter(continuation(script)))
    spelt = {FIRST + i: piece for i, piece in enumerate(PIECES)}
    made._parts.tokenizer.token_bytes = lambda token: spelt.get(token, b"?")  # type: ignore[method-assign]
    arms = [Knobs("prefix", draft_max=length), Knobs("replay", draft_max=length)]
    found = run(made, *arms, max_tokens=TOKENS)
    record = record_of(found.events)
    for arm in record.arms:
        assert "".join(arm.texts) == TEXT * 10
        assert arm.texts[: len(PIECES)] == ["", "", "", TEXT[0], "", "", TEXT[1], "", TEXT[2], "a"]
    document = report.ab_document([report.RunEvents.of(found.events)])
    assert {arm["text"] for arm in document["arms"]} == {TEXT * 10}
