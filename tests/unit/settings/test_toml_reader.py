"""A text that is no TOML is told with its place, also where the parser only says that the text has ended."""

from __future__ import annotations

import pytest

from wukongs.errors import SettingsError
from wukongs.settings.toml_reader import parse_toml


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = 1\n[x\n", "f.toml, line 2, column 3: expected TOML, found an error: Expected ']'"),
        ("a = 1\nb = ", "f.toml, line 2, the last one: expected TOML, found an error: Invalid value"),
        ("a = 1\n\na = 2\n\n", "f.toml, line 3, "),
    ],
)
def test_a_text_that_is_no_toml(text: str, told: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parse_toml(text, "f.toml", {})
    assert str(raised.value).startswith(told)
