"""The functions that encode and decode protocol values: one for each dataclass, of source that is made from its hints.

A message of the protocol has hundreds of values, and nodes decode hundreds of messages a second: a call for each value,
and its place in case it is wrong, take most of that time. So the values of a dataclass are checked and taken in one
expression. The source is made of our own names only; nothing of what a peer sends gets into it.

A decoder raises whatever comes of a lie, mostly _Lie: protocol_codec.py then looks for the place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, NoReturn

from wukongs.wire.type_shapes import (
    Choice,
    Distinct,
    Fields,
    Fixed,
    Object,
    OneOf,
    Optional,
    Pairs,
    Plain,
    Sequence,
    shape_of,
)

INT64_MAX = (1 << 63) - 1


class _Lie(Exception):
    """The bytes that came are no value of their type."""


def _lie() -> NoReturn:
    raise _Lie


@cache
def encoder(kind: Any) -> Callable[[Any], Any]:
    """Return what makes JSON values of a value. Raises TypeError (a type that has no wire form)."""
    return _Source().encoder(kind)


@cache
def decoder(kind: Any) -> Callable[[Any], Any]:
    """Return what makes a value of JSON values, and raises an Exception if they stand for none."""
    return _Source().decoder(kind)


class _Source:
    """The source of one function, and what its names stand for. Every name in it is given by `_given` or `_new`."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {"lie": _lie}
        self._numbers = count()

    def encoder(self, kind: Any) -> Callable[[Any], Any]:
        shape = shape_of(kind)
        if not isinstance(shape, Fields):
            return self._made([f"return {self._encode('value', kind)}"])
        lines, kept = [], []
        for name, hint in shape.hints.items():
            if name in shape.defaults:
                put = f"made[{name!r}] = {self._encode(f'value.{name}', hint)}"
                lines += [f"if value.{name} != {self._given(shape.defaults[name])}:", f"    {put}"]
            else:
                kept.append(f"{name!r}: {self._encode(f'value.{name}', hint)}")
        return self._made([f"made = {{{', '.join(kept)}}}", *lines, "return made"])

    def decoder(self, kind: Any) -> Callable[[Any], Any]:
        """The parameter `more` is how many entries there are besides the fields."""
        shape = shape_of(kind)
        if not isinstance(shape, Fields):
            return self._made([f"return {self._decode('value', kind)}"])
        required = [name for name in shape.hints if name not in shape.defaults]
        sizes = [str(len(required)), "more", *(f"({name!r} in value)" for name in shape.defaults)]
        taken = []
        for name, hint in shape.hints.items():
            one = self._decode(f"value[{name!r}]", hint)
            if name in shape.defaults:
                one = f"({one} if {name!r} in value else {self._given(shape.defaults[name])})"
            taken.append(f"{name}={one}")
        return self._made(
            [
                f"if type(value) is not dict or len(value) != {' + '.join(sizes)}:",
                "    lie()",
                f"return {self._given(shape.kind)}({', '.join(taken)})",
            ]
        )

    def _made(self, lines: list[str]) -> Callable[[Any], Any]:
        body = "".join(f"    {line}\n" for line in lines)
        exec(f"def made_of(value, more=0):\n{body}", self._names)
        made: Callable[[Any], Any] = self._names["made_of"]
        return made

    def _new(self) -> str:
        return f"v{next(self._numbers)}"

    def _given(self, value: Any) -> str:
        """Return a name for a value."""
        name = self._new()
        self._names[name] = value
        return name

    def _encode(self, value: str, kind: Any) -> str:
        """Return the expression of what a value, itself an expression without effects, is encoded to."""
        match shape_of(kind):
            case Plain():
                return value
            case Sequence(member) | Distinct(member):
                one = self._new()
                listed = f"[{self._encode(one, member)} for {one} in {value}]"
                return f"sorted({listed})" if isinstance(shape_of(kind), Distinct) else listed
            case Fixed(kinds):
                return f"[{', '.join(self._encode(f'{value}[{place}]', one) for place, one in enumerate(kinds))}]"
            case Object(of):
                name, one = self._new(), self._new()
                return f"{{{name}: {self._encode(one, of)} for {name}, {one} in {value}.items()}}"
            case Pairs(key, of):
                name, one = self._new(), self._new()
                pair = f"[{self._encode(name, key)}, {self._encode(one, of)}]"
                return f"[{pair} for {name}, {one} in {value}.items()]"
            case Choice():
                return f"{value}.value"
            case Fields():
                return f"{self._given(encoder(kind))}({value})"
            case Optional(of):
                return f"(None if {value} is None else {self._encode(value, of)})"
            case OneOf(kinds):
                named = self._given({one: (name, encoder(one)) for name, one in kinds.items()})
                return f"{self._given(_tagged)}({named}, {value})"

    def _decode(self, found: str, kind: Any) -> str:
        """Return the expression of what is decoded from an expression; it looks at that one once."""
        new = self._new()
        match shape_of(kind):
            case Plain(of):
                bounds = f" and {-INT64_MAX} <= {new} <= {INT64_MAX}" if of is int else ""
                return f"({new} if type({new} := {found}) is {self._given(of)}{bounds} else lie())"
            case Sequence(member):
                return f"tuple({self._listed(found, member)})"
            case Fixed(members, make):
                ones = ", ".join(self._decode(f"{new}[{place}]", one) for place, one in enumerate(members))
                made = f"({ones},)" if make is None else f"{self._given(make)}({ones})"
                return f"({made} if type({new} := {found}) is list and len({new}) == {len(members)} else lie())"
            case Distinct(member):
                return f"{self._given(_distinct)}({self._listed(found, member)})"
            case Object(of):
                name, one = self._new(), self._new()
                made = f"{{{name}: {self._decode(one, of)} for {name}, {one} in {new}.items()}}"
                return f"({made} if type({new} := {found}) is dict else lie())"
            case Pairs() as pairs:
                return f"{self._given(_mapping)}({self._listed(found, pairs.pair)})"
            case Choice(named):
                return f"({self._given(named)}[{new}] if type({new} := {found}) in (str, int) else lie())"
            case Fields():
                return f"{self._given(decoder(kind))}({found})"
            case Optional(of):
                return f"(None if ({new} := {found}) is None else {self._decode(new, of)})"
            case OneOf(kinds):
                decoders = self._given({name: decoder(one) for name, one in kinds.items()})
                return f"{decoders}[({new} := {found})['is']]({new}, 1)"

    def _listed(self, found: str, member: Any) -> str:
        new, one = self._new(), self._new()
        return f"([{self._decode(one, member)} for {one} in {new}] if type({new} := {found}) is list else lie())"


def _tagged(encoders: dict[type, tuple[str, Callable[[Any], Any]]], value: Any) -> dict[str, Any]:
    name, encode = encoders[type(value)]
    return {"is": name, **encode(value)}


def _distinct(members: list[Any]) -> frozenset[Any]:
    found = frozenset(members)
    return found if len(found) == len(members) else _lie()


def _mapping(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _lie()
