"""Reads `docs/json.md`: which fields the page says that an object has, and of which types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
HEAD = "| field | type | unit | meaning |"
ROW = re.compile(r"\| `(\w+)` \| ([^|]+) \| [^|]*\|[^|]*\|")
LINK = re.compile(r"\[([^\]]+)\]\(#([\w-]+)\)")
NOT_FINITE = ("inf", "-inf", "nan")
WORDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "number": (int, float),
    "bool": (bool,),
    "list": (list,),
    "map": (dict,),
}


@dataclass
class Page:
    """The page's tables by the anchor of their heading, and what of them was seen in documents."""

    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    seen: set[tuple[str, str]] = field(default_factory=set)

    @staticmethod
    def read() -> Page:
        """Every table of fields; a heading without one has no fields."""
        page, anchor, is_table = Page(), "", False
        for line in PAGE.read_text(encoding="utf-8").splitlines():
            if line.startswith("#"):
                anchor = line.lstrip("# ").lower().replace(" ", "-")
                assert anchor not in page.tables, f"two headings {anchor}"
                page.tables[anchor] = {}
            is_table = line == HEAD or (is_table and line.startswith("|"))
            row = ROW.fullmatch(line) if is_table else None
            if row is not None:
                name, kind = row.groups()
                assert name not in page.tables[anchor], f"{anchor}.{name} is there twice"
                page.tables[anchor][name] = kind
            assert row or not is_table or line == HEAD or set(line) <= set("|-"), line
        return page

    def problems(self, table: str, value: Any, where: str = "") -> Iterator[str]:
        """What an object has otherwise than its table says."""
        rows = self.tables[table]
        for name in value.keys() - rows.keys():
            yield f"{where}.{name} is not in the table {table}"
        for name, kind in rows.items():
            kind, _, optional = kind.partition(", ")
            if name in value:
                self.seen.add((table, name))
                yield from self._check(kind, value[name], f"{where}.{name}")
            elif optional != "optional":
                yield f"{where}.{name} of the table {table} is missing"

    def _check(self, kind: str, value: Any, where: str) -> Iterator[str]:
        if kind.startswith(("list of ", "map to ")):
            of, item = (list if kind.startswith("list") else dict), kind.split(" ", 2)[2]
            if not isinstance(value, of):
                yield f"{where} is {value!r}, not a {kind}"
                return
            for one in value.values() if isinstance(value, dict) else value:
                yield from self._check(item, one, f"{where}[]")
            return
        if kind.endswith("?"):
            if value is not None:
                yield from self._check(kind[:-1], value, where)
            return
        link = LINK.fullmatch(kind)
        if link is not None and isinstance(value, dict):
            yield from self.problems(link.group(2), value, where)
        elif link is not None or not self._is_plain(kind, value):
            yield f"{where} is {value!r}, not {kind}"

    def _is_plain(self, kind: str, value: Any) -> bool:
        if kind == "any":
            return True
        is_bool = isinstance(value, bool)
        spelled = kind == "number" and value in NOT_FINITE
        return spelled or (isinstance(value, WORDS[kind]) and is_bool == (kind == "bool"))

    def unseen(self, *tables: str) -> list[str]:
        """Fields that no document had, of some tables and all that they lead to."""
        todo, reached = list(tables), set[str]()
        while todo:
            table = todo.pop()
            if table not in reached:
                reached.add(table)
                found = (LINK.findall(kind) for kind in self.tables[table].values())
                todo += [anchor for links in found for _, anchor in links]
        rows = [(table, name) for table in sorted(reached) for name in self.tables[table]]
        return [f"{table}.{name}" for table, name in rows if (table, name) not in self.seen]
