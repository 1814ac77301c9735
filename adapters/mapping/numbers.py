"""Numbers as people write them, with a decimal comma or marks between thousands, become those of XML Schema."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from wukongs.errors import DataError
from wukongs.query.terms.arrow_texts import TEXT

_NO_MARK = re.compile(r"[0-9A-Za-z+\-]")


@dataclass(frozen=True)
class NumberFormat:
    """decimal: the character before the fraction. thousands: each of its characters may stand before three digits."""

    decimal: str = "."
    thousands: str = ""

    def __post_init__(self) -> None:
        """Raises: DataError (a mark that is no mark)."""
        if len(self.decimal) != 1 or self.decimal.isspace() or _NO_MARK.match(self.decimal):
            raise DataError(f"expected one character such as ',' as the decimal mark, found {self.decimal!r}")
        if self.decimal in self.thousands:
            raise DataError(f"expected other marks between thousands than the decimal mark {self.decimal!r}")
        if _NO_MARK.search(self.thousands):
            raise DataError(f"expected marks such as '.' between thousands, found {self.thousands!r}")

    def __str__(self) -> str:
        marks = f" and {' or '.join(map(repr, self.thousands))} between thousands" if self.thousands else ""
        return f"the decimal mark {self.decimal!r}{marks}"

    @cached_property
    def _pattern(self) -> str:
        grouped = f"|[0-9]{{1,3}}([{re.escape(self.thousands)}][0-9]{{3}})+" if self.thousands else ""
        mark = re.escape(self.decimal)
        number = f"(([0-9]+{grouped})({mark}[0-9]*)?|{mark}[0-9]+)([eE][+-]?[0-9]+)?"
        return f"^([+-]?{number}|[+-]?INF|NaN)$"

    def plain(self, cells: pa.Array) -> pa.Array:
        """Return trimmed texts as XML Schema writes numbers; null where a text is no such number."""
        fits = pc.match_substring_regex(cells, self._pattern)
        cells = pc.if_else(fits, cells, pa.scalar(None, TEXT))
        if self.thousands:
            cells = pc.replace_substring_regex(cells, f"[{re.escape(self.thousands)}]", "")
        return cells if self.decimal == "." else pc.replace_substring(cells, self.decimal, ".")
