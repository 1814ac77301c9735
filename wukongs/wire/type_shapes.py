"""The parts of the types of protocol values, as their hints say. protocol_codec.py writes a value of each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import GenericAlias, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class Plain:
    """A type that JSON has itself. expected: its name in messages."""

    kind: type
    expected: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """A tuple of any length."""

    member: Any


@dataclass(frozen=True, slots=True)
class Fixed:
    """A tuple with a type for each place. make: the NamedTuple that it is, None: it is none."""

    members: tuple[Any, ...]
    make: Callable[..., Any] | None


@dataclass(frozen=True, slots=True)
class Distinct:
    """A frozenset."""

    member: Any


@dataclass(frozen=True, slots=True)
class Object:
    """A mapping from texts."""

    of: Any


@dataclass(frozen=True, slots=True)
class Pairs:
    """A mapping from anything else."""

    key: Any
    of: Any

    @property
    def pair(self) -> Any:
        """The type of one pair."""
        return GenericAlias(tuple, (self.key, self.of))


@dataclass(frozen=True, slots=True)
class Choice:
    """An enum, by the values of its members."""

    members: dict[Any, Enum]


@dataclass(frozen=True, slots=True)
class Fields:
    """A dataclass. defaults: of the fields that have one."""

    kind: type
    hints: dict[str, Any]
    defaults: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Optional:
    """None, or a value of a type."""

    of: Any


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several dataclasses, by their names."""

    kinds: dict[str, type]


Shape: TypeAlias = Plain | Sequence | Fixed | Distinct | Object | Pairs | Choice | Fields | Optional | OneOf

_TEXT = Plain(str, "a text")
_PLAIN: dict[Any, Plain] = {
    int: Plain(int, "an integer of 64 bits"),
    str: _TEXT,
    bool: Plain(bool, "true or false"),
    type(None): Plain(type(None), "null"),
    Hashable: _TEXT,  # a host's payload: JSON, as a text
}


@cache
def shape_of(kind: Any) -> Shape:
    """Return what a type is made of. Raises TypeError (a type that has no wire form)."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin in (Union, UnionType):
        return _union(arguments)
    if origin is tuple:
        return Sequence(arguments[0]) if arguments[-1] is Ellipsis else Fixed(arguments, None)
    if origin is frozenset:
        return Distinct(arguments[0])
    if origin is not None and issubclass(origin, Mapping):
        return Object(arguments[1]) if arguments[0] is str else Pairs(*arguments)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return Choice({member.value: member for member in kind})
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return Fixed(tuple(get_type_hints(kind).values()), kind)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        defaults = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
        return Fields(kind, {field.name: hints[field.name] for field in fields(kind)}, defaults)
    raise TypeError(f"no wire form for {kind}")


def _union(kinds: tuple[Any, ...]) -> Shape:
    others = tuple(kind for kind in kinds if kind is not type(None))
    if len(others) < len(kinds):
        return Optional(Union[others])  # noqa: UP007  (of any number of types)
    assert all(map(is_dataclass, kinds)), kinds
    return OneOf({kind.__name__: kind for kind in kinds})
