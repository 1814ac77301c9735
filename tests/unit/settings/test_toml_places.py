"""wukongs/settings/toml_places.py: where keys and texts stand, whatever TOML lets people write."""

from __future__ import annotations

import tomllib

import pytest

from wukongs.settings.toml_places import TomlPlaces

WHOLE = """\
top = 1 # [not.a.table]
"quoted key" = "a = b"
[engine]
list = [
  "[[no]]", # [[no]]
  '''a
  b = 1''',
]
a.b . c = 3
[[stream]]
iri = "one"
source = { kind = "x", path = [ "a", { b = "]" } ] }
[[stream]]
iri = "two"
  [stream.source]
  kind = "y"
  [[stream.more]]
  one = 1
  [[stream.more]]
  two = 2
["quo.ted".'x']
z = 2020-01-01T00:00:00Z
last = true"""


@pytest.mark.parametrize("text", [WHOLE, WHOLE.replace("\n", "\r\n"), WHOLE + "\n"])
def test_the_lines_of_keys(text: str) -> None:
    tomllib.loads(text)
    places = TomlPlaces(text)
    lines = {
        "top": 1,
        "quoted key": 2,
        "engine": 3,
        "engine.list": 4,
        "engine.a.b.c": 9,
        "stream": 10,
        "stream[0]": 10,
        "stream[0].iri": 11,
        "stream[0].source.kind": 12,
        "stream[1].iri": 14,
        "stream[1].source": 15,
        "stream[1].source.kind": 16,
        "stream[1].more[0].one": 18,
        "stream[1].more[1].two": 20,
        "quo.ted.x.z": 22,
        "quo.ted.x.last": 23,
    }
    assert {key: places.line(key) for key in lines} == lines
    assert places.line("nowhere") == places.line("") == 0


def test_what_is_missing_has_the_line_of_its_table() -> None:
    assert TomlPlaces("\n[[ask]]\nname = 'A'\n").line("ask[0].text") == 2


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("text = 'ASK {}'", (1, 9)),
        ('\n text="ASK {}" # "', (2, 8)),
        ('text = """ASK\n{}"""', (1, 11)),
        ('text = """\nASK\n{}\n"""\nlast = 1', (2, 1)),
        ('text = """\r\nASK\r\n{}\r\n"""\r\n', (2, 1)),
        ("text = '''\n\nASK ''x'' {}'''", (2, 1)),
        ('text = """"quoted" twice"""""', (1, 11)),
        ('text = "a\\nb"', None),
        ('text = """\na \\\n  b"""', None),
        ("text = ['ASK {}']", None),
        ("text = 3", None),
    ],
)
def test_where_a_text_begins(text: str, place: tuple[int, int] | None) -> None:
    value = tomllib.loads(text)["text"]
    assert TomlPlaces(text).text_place("text", value if isinstance(value, str) else "ASK {}") == place
    assert TomlPlaces(text).text_place("other", "ASK {}") is None
