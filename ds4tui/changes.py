"""What a drain of the engine's events changed. Knows neither the engine nor widgets."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Changes:
    """What a drain changed, for whoever draws."""

    record: bool = False
    tokens: bool = False
    state: bool = False
    parted: bool = False
    ended: bool = False
    rendered: bool = False
    suite: bool = False
    costs: bool = False
    notices: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def add(self, later: Changes) -> None:
        """Both together."""
        for name in self.__slots__:
            both = getattr(self, name) or getattr(later, name)
            setattr(self, name, both if name != "notices" else self.notices + later.notices)
