"""The small expressions of a mapping: columns, numbers, + - * /, parentheses, max(...) and min(...).

    expression = product (("+" | "-") product)*
    product    = factor (("*" | "/") factor)*
    factor     = number | name | ("max" | "min") "(" expression ("," expression)* ")" | "(" expression ")" | "-" factor
    name       = letters, digits and _ | "{" any name "}"

An expression is compiled once into nested Python functions; no text is ever evaluated as Python.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from wukongs.errors import SettingsError

Value = float | int
Evaluate = Callable[[Mapping[str, Value]], Value]

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*|\{[^{}]+\})|(?P<sign>[-+*/(),]))")
_NUMBER = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_INTEGER = re.compile(r"\s*[-+]?\d+\s*", re.ASCII)


class DivisionByZero(ArithmeticError):
    """A divisor was 0; the mapping says what the value is then."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression: the columns that it reads, and its value for their numbers."""

    text: str
    columns: tuple[str, ...]
    evaluate: Evaluate

    def __reduce__(self) -> tuple[object, ...]:
        return compile_expression, (self.text, "number")


def number(text: str) -> Value | None:
    """Return the finite number that a CSV field holds (an int where it is written as one), None if it holds none."""
    if _INTEGER.fullmatch(text):
        with suppress(ValueError):  # more digits than Python reads
            return int(text)
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def compile_expression(text: str, place: str) -> Expression:
    """Compile an expression. Raises: SettingsError (a text that does not parse)."""
    return _Compiler(text, place).whole()


class _Compiler:
    def __init__(self, text: str, place: str) -> None:
        self._text, self._place = text, place
        self._columns: list[str] = []
        self._tokens: list[tuple[str, str]] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error("a column, a number, an operator, max(...) or min(...)", repr(text[position:]))
            self._tokens.append((str(match.lastgroup), str(match[str(match.lastgroup)])))
            position = match.end()
        self._tokens.append(("end", ""))
        self._next = 0

    def whole(self) -> Expression:
        evaluate = self._sum()
        if self._tokens[self._next][0] != "end":
            raise self._error("an operator", repr(self._tokens[self._next][1]))
        return Expression(self._text, tuple(dict.fromkeys(self._columns)), evaluate)

    def _sum(self) -> Evaluate:
        left = self._product()
        while sign := self._accept("+", "-"):
            left = _binary(operator.add if sign == "+" else operator.sub, left, self._product())
        return left

    def _product(self) -> Evaluate:
        left = self._factor()
        while sign := self._accept("*", "/"):
            left = _binary(operator.mul if sign == "*" else _divide, left, self._factor())
        return left

    def _factor(self) -> Evaluate:
        if self._accept("-"):
            inner = self._factor()
            return lambda row: -inner(row)
        if self._accept("("):
            inner = self._sum()
            self._expect(")")
            return inner
        kind, text = self._tokens[self._next]
        if kind == "number":
            self._next += 1
            constant = float(text) if "." in text else int(text)
            return lambda row: constant
        if kind != "name":
            raise self._error("a column, a number or (", repr(text) if text else "the end")
        self._next += 1
        if text in ("max", "min") and self._accept("("):
            return self._choice(max if text == "max" else min)
        name = text.strip("{}")
        self._columns.append(name)
        return lambda row: row[name]

    def _choice(self, choose: Callable[[list[Value]], Value]) -> Evaluate:
        parts = [self._sum()]
        while self._accept(","):
            parts.append(self._sum())
        self._expect(")")
        return lambda row: choose([part(row) for part in parts])

    def _accept(self, *signs: str) -> str:
        kind, text = self._tokens[self._next]
        if kind == "sign" and text in signs:
            self._next += 1
            return text
        return ""

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise self._error(
                repr(sign), repr(self._tokens[self._next][1]) if self._tokens[self._next][1] else "the end"
            )

    def _error(self, expected: str, found: str) -> SettingsError:
        return SettingsError(f"{self._place} = {self._text!r}: expected {expected}, found {found}")


def _binary(operate: Callable[[Value, Value], Value], left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda row: operate(left(row), right(row))


def _divide(left: Value, right: Value) -> Value:
    if right == 0:
        raise DivisionByZero
    return left / right
