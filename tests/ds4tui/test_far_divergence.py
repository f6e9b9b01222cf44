"""A divergence far into a long run, on events of the engine itself: one key goes there."""

from __future__ import annotations

from tests.ds4tui.session import SMALL, Session, finished
from tests.engine.test_ab import tilted


async def test_one_key_goes_to_a_divergence_at_3900_of_4000() -> None:
    session = Session(tilted("prefix", index=3900, max_tokens=4000, digest_every=200).events)
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        left, right = session.app.playground.left, session.app.playground.right
        await pilot.press("g")
        assert (left.cursor, left.scroll_offset.y) == (0, 0)
        await pilot.press("d")
        assert left.cursor == right.cursor == left.parting == 3900
        await pilot.pause()
        screen = session.screen
        assert screen[2].startswith("≠ DIVERGED at 3900")
        assert any("►" in row for row in screen[4:17])
        assert right._style(3900, 0).reverse
        assert not right._style(3899, 0).reverse
