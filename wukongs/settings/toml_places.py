"""Where the keys and texts of a TOML file stand: tomllib, which reads their values, gives no places.

The file has been read by tomllib, so it is known to be right, and to find keys is to skip strings, comments and
brackets. A key is named as TableReader names it: `stream[0].source.kind`; keys of an inline table have the place of
the table's key.
"""

from __future__ import annotations

import re

_SKIPPED = re.compile(r"(?:\s|#[^\n]*)*")
_HEADER = re.compile(r"(\[\[?)([^\n]*?)(\]\]?)[ \t]*(?=#|\r?\n|$)")
_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_KEY = re.compile(rf"{_PART.pattern}(?:\.{_PART.pattern})*")
_STRING = re.compile(
    r'"""(?P<long>(?:[^\\]|\\.)*?"{0,2})"""(?!")'
    r"|'''(?P<raw>.*?'{0,2})'''(?!')"
    r'|"(?P<short>(?:[^"\\\n]|\\.)*)"'
    r"|'(?P<plain>[^'\n]*)'",
    re.DOTALL,
)


class TomlPlaces:
    """The places of the keys of one file."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._keys: dict[str, int] = {}
        """Key -> where it, or the header of its table, begins."""
        self._strings: dict[str, tuple[int, int]] = {}
        """Key -> from where to where the content of its string goes, the quotes left aside."""
        self._counts: dict[str, int] = {}
        self._read()

    def line(self, key: str) -> int:
        """Return the line of a key, or of the table that it is, or belongs, in; 0 if that is nowhere."""
        while key and key not in self._keys:
            key = key.rpartition(".")[0]
        return self._line_and_column(self._keys[key])[0] if key else 0

    def text_place(self, key: str, value: str) -> tuple[int, int] | None:
        """Return line and column where the text of a key begins; None if it is not written letter by letter, so that
        places in it are none in the file."""
        if key not in self._strings:
            return None
        start, stop = self._strings[key]
        if self._text[start:stop].replace("\r\n", "\n") != value:
            return None
        return self._line_and_column(start)

    def _line_and_column(self, place: int) -> tuple[int, int]:
        return self._text.count("\n", 0, place) + 1, place - self._text.rfind("\n", 0, place)

    def _read(self) -> None:
        table, place = "", 0
        while (place := self._skipped(place)) < len(self._text):
            header = _HEADER.match(self._text, place)
            if header is not None:
                table = self._table(_parts(header[2]), is_list=header[1] == "[[")
                for name in (table, table.rpartition("[")[0]):
                    self._keys.setdefault(name, place)
                place = header.end()
                continue
            key = _KEY.match(self._text, place)
            if key is None:
                return  # no TOML that we know: what was found is right
            name = ".".join([*([table] if table else []), *_parts(key[0])])
            self._keys.setdefault(name, place)
            place = self._value(name, key.end() + 1)  # behind the equals sign

    def _skipped(self, place: int) -> int:
        found = _SKIPPED.match(self._text, place)
        return found.end() if found is not None else place

    def _table(self, parts: list[str], is_list: bool) -> str:
        """Return the name of the table that a header opens."""
        name = ""
        for index, part in enumerate(parts):
            name = f"{name}.{part}" if name else part
            if is_list and index == len(parts) - 1:
                self._counts[name] = self._counts.get(name, 0) + 1
            if name in self._counts:
                name = f"{name}[{self._counts[name] - 1}]"
        return name

    def _value(self, key: str, place: int) -> int:
        """Skip a value; return the place behind it. Remember where it is, if it is a string."""
        depth, is_first = 0, True
        while place < len(self._text):
            character = self._text[place]
            if character == "\n" and not depth:
                return place
            string = _STRING.match(self._text, place) if character in "\"'" else None
            if string is not None:
                if is_first:
                    self._strings[key] = self._content(string)
                place = string.end()
            elif character == "#":
                end = self._text.find("\n", place)
                place = len(self._text) if end < 0 else end
            else:
                depth += (character in "[{") - (character in "]}")
                place += 1
            is_first = is_first and character.isspace()
        return place

    def _content(self, string: re.Match[str]) -> tuple[int, int]:
        start, stop = string.span(string.lastgroup or 0)
        if string.lastgroup in ("long", "raw"):  # a line feed right behind the quotes is no part of the text
            if self._text.startswith("\r\n", start):
                start += 2
            elif self._text.startswith("\n", start):
                start += 1
        return start, stop


def _parts(dotted: str) -> list[str]:
    return [_word(part) for part in _PART.finditer(dotted)]


def _word(part: re.Match[str]) -> str:
    return next(word for word in part.groups() if word is not None)
