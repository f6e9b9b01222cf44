"""The configuration file: precedence, and sentences for mistakes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ds4tui.config import UiConfig, config_path, load_config, show
from engine.errors import Ds4Error


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return str(path)


def test_nothing_there_gives_the_defaults(tmp_path: Path) -> None:
    for environment in ({}, {"DS4TUI_CONFIG": "", "DS4TUI_THEME": ""}):
        assert load_config(environment=environment, given=None) is not None
    with pytest.raises(Ds4Error, match="does not exist"):
        load_config(str(tmp_path / "none.toml"), environment={})
    with pytest.raises(Ds4Error, match="does not exist"):
        load_config(environment={"DS4TUI_CONFIG": str(tmp_path / "none.toml")})


def test_flag_before_environment_before_file_before_default(tmp_path: Path) -> None:
    path = written(tmp_path, 'theme = "light"\nfps = 10\n')
    found = load_config(path, environment={"DS4TUI_FPS": "20", "DS4TUI_ASCII": "1"})
    assert found == UiConfig(theme="light", fps=20, ascii=True)
    assert load_config(path, environment={"DS4TUI_ASCII": "0"}, ascii=True).ascii
    assert config_path("a.toml", {"DS4TUI_CONFIG": "b.toml"}) == Path("a.toml")
    assert config_path(None, {"DS4TUI_CONFIG": "b.toml"}) == Path("b.toml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('thema = "dark"', 'unknown key "thema".*Did you mean theme'),
        ("zzz = 1", "Known keys: theme, fps"),
        ("theme = 3", "theme is 3; expected a text"),
        ('theme = "pink"', "theme is pink; expected dark, light, contrast"),
        ("fps = 0", "fps is 0; expected 1 to 60"),
        ("fps = true", "fps is True; expected a whole number"),
        ("keys = 3", "keys is 3; expected a table"),
        ("[keys]\nrun = 3", "keys.run is 3; expected a key's name"),
        ('[keys]\nrun = ""', "keys.run is ''; expected a key's name"),
        ("theme =", "is no TOML"),
    ],
)
def test_a_mistake_names_the_key(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(Ds4Error, match=sentence):
        load_config(written(tmp_path, text), environment={})


def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    with pytest.raises(Ds4Error, match="DS4TUI_FPS is x; expected a whole number"):
        load_config(path, environment={"DS4TUI_FPS": "x"})
    with pytest.raises(Ds4Error, match="DS4TUI_FPS is 0; expected 1 to 60"):
        load_config(path, environment={"DS4TUI_FPS": "0"})
    with pytest.raises(Ds4Error, match="DS4TUI_THEME is pink; expected dark, light, contrast"):
        load_config(path, environment={"DS4TUI_THEME": "pink"})
    with pytest.raises(Ds4Error, match="DS4TUI_ANIMATION is much; expected none, basic, full"):
        load_config(path, environment={"DS4TUI_ANIMATION": "much"})


def test_what_is_shown_can_be_read_again(tmp_path: Path) -> None:
    config = UiConfig("light", 12, "basic", True, {"run": 'q"\\'})
    assert tomllib.loads(show(config))["keys"] == {"run": 'q"\\'}
    assert load_config(written(tmp_path, show(config)), environment={}) == config
