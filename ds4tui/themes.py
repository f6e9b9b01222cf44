"""The three themes: dark, light, high contrast. Blue and orange after Okabe and Ito, never
red against green. Owns colours only; attributes that carry meaning are in the style sheet.
"""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="dark",
    dark=True,
    primary="#56b4e9",
    secondary="#e69f00",
    accent="#cc79a7",
    warning="#e69f00",
    error="#ff8f66",
    success="#56b4e9",
    foreground="#d8dee6",
    background="#10151c",
    surface="#10151c",
    panel="#1b232d",
    variables={
        "arm-plain": "#56b4e9",
        "arm-dspark": "#f0ad2e",
        "frame": "#46566a",
        "faint": "#8796a8",
        "key": "#8ecbf0",
        "block-cursor-foreground": "#10151c",
        "block-cursor-background": "#56b4e9",
        "input-selection-background": "#56b4e9 35%",
        "screen-selection-background": "#56b4e9 40%",
    },
)

LIGHT = Theme(
    name="light",
    dark=False,
    primary="#0072b2",
    secondary="#9a5b00",
    accent="#a04f7d",
    warning="#9a5b00",
    error="#a83200",
    success="#0072b2",
    foreground="#1c242d",
    background="#fbfaf7",
    surface="#fbfaf7",
    panel="#edebe4",
    variables={
        "arm-plain": "#0072b2",
        "arm-dspark": "#a85f00",
        "frame": "#a9a698",
        "faint": "#66686c",
        "key": "#005a8d",
        "block-cursor-foreground": "#fbfaf7",
        "block-cursor-background": "#0072b2",
        "input-selection-background": "#0072b2 25%",
        "screen-selection-background": "#0072b2 25%",
    },
)

CONTRAST = Theme(
    name="contrast",
    dark=True,
    primary="#7fd0ff",
    secondary="#ffc020",
    accent="#ffa6d6",
    warning="#ffc020",
    error="#ffb089",
    success="#7fd0ff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#101010",
    variables={
        "arm-plain": "#7fd0ff",
        "arm-dspark": "#ffc020",
        "frame": "#c0c0c0",
        "faint": "#d0d0d0",
        "key": "#7fd0ff",
        "block-cursor-foreground": "#000000",
        "block-cursor-background": "#ffffff",
        "input-selection-background": "#7fd0ff 45%",
        "screen-selection-background": "#7fd0ff 45%",
    },
)

THEMES = (DARK, LIGHT, CONTRAST)


def next_theme(name: str) -> str:
    """The theme after this one; the first for a name that is none of them."""
    names = [theme.name for theme in THEMES]
    return names[(names.index(name) + 1) % len(names)] if name in names else names[0]
