"""Which key does what: the bindings of app, screen and panes by id, as they are bound now.

Owns the lookup for footer, help and palette. The bindings belong to the classes that act.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from textual.binding import Binding, BindingType
from textual.keys import format_key

from engine.errors import Ds4Error

GROUPS = (
    (
        "run",
        "run pause escape slow slower faster step_back step seek prompt follow_up "
        "next_prompt previous_prompt run_all all_cells",
    ),
    (
        "knobs",
        "policy policy_back numerics confidence confidence_down block block_down",
    ),
    (
        "tokens",
        "token_left token_right row_up row_down page_up page_down token_first token_last "
        "cycle_before cycle_after divergence drift token rejected sources together other_arm",
    ),
    (
        "everywhere",
        "screen_1 screen_2 screen_3 screen_4 screen_5 screen_6 screen_7 "
        "next_pane pane_before maximise flip copy export report open theme help suspend quit",
    ),
)
"""Binding ids of the help, in groups; those of the other screens follow, a group a screen."""


class KeyTable:
    """Bindings by id.

    Args:
        lists: the `BINDINGS` of the classes that act, by the name of the screen or part.
        remapped: other keys by binding id, from the configuration.
    Raises:
        Ds4Error: for an id that no binding has.
    """

    def __init__(
        self, lists: Mapping[str, Iterable[BindingType]], remapped: Mapping[str, str]
    ) -> None:
        self._bindings: dict[str, Binding] = {}
        self.by_area: dict[str, list[str]] = {}
        for area, bindings in lists.items():
            named = [b for b in bindings if isinstance(b, Binding) and b.id]
            self._bindings.update({str(binding.id): binding for binding in named})
            self.by_area[area] = [str(binding.id) for binding in named]
        for name in remapped:
            if name not in self._bindings:
                near = difflib.get_close_matches(name, self._bindings, 1, 0.0)[0]
                raise Ds4Error(
                    "Unknown key name",
                    f'The configuration binds "{name}", which is no action of the interface.',
                    f'The nearest one is "{near}".',
                )
        self.remapped = dict(remapped)
        self.shown = {name: self._shown(binding) for name, binding in self._bindings.items()}

    def _shown(self, binding: Binding) -> str:
        assert binding.id is not None
        remapped = self.remapped.get(binding.id)
        if remapped is None and binding.key_display:
            return binding.key_display
        return _display((remapped or binding.key).split(",")[0])

    def binding(self, name: str) -> Binding:
        """A binding as it was declared."""
        return self._bindings[name]

    def action(self, name: str) -> str:
        """The action string of a binding."""
        return self._bindings[name].action

    def groups(self) -> list[tuple[str, list[str]]]:
        """(group, binding ids): those of `GROUPS`, then what else each screen has."""
        groups = [(group, names.split()) for group, names in GROUPS]
        known = {name for _, names in groups for name in names}
        for area, names in self.by_area.items():
            rest = [name for name in names if name not in known]
            if rest:
                groups.append((f"screen {area}", rest))
        return groups

    def help(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        """(group, (keys, what they do, id for the configuration)) of everything."""
        groups = []
        for group, names in self.groups():
            entries = []
            for name in names:
                binding = self._bindings[name]
                keys = self.remapped.get(name) or binding.key
                shown = " ".join(map(_display, keys.split(",")))
                entries.append((shown, binding.description, name))
            groups.append((group, entries))
        return groups


_NAMES = {
    **dict.fromkeys(("enter", "space", "tab", "left", "right", "up", "down"), ""),
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
}
"""Keys that are written as words, "" as the same one."""


def _display(key: str) -> str:
    modifiers, _, name = key.rpartition("+")
    word = _NAMES[name] or name if name in _NAMES else format_key(name)
    return f"{modifiers}+{word}" if modifiers else word
