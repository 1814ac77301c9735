"""Reading TOML with care: every key with its type, every file in its place, nothing left over."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from wukongs.errors import DataError, SettingsError
from wukongs.settings import Settings
from wukongs.settings.text_file import decode_text
from wukongs.settings.toml_places import TomlPlaces

T = TypeVar("T")

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}")


def read_toml(path: str | Path, environment: Mapping[str, str] | None = None) -> TableReader:
    """Return a reader of a TOML file; environment None is this process's.

    Raises: SettingsError (a file that is not there, or no TOML in UTF-8)."""
    file = Path(path)
    try:
        text = decode_text(file.read_bytes(), "TOML", str(file))
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror}). Give the path of a TOML file") from None
    except DataError as error:
        raise SettingsError(str(error)) from None
    return parse_toml(text, str(file), environment)


def parse_toml(text: str, file: str, environment: Mapping[str, str] | None = None) -> TableReader:
    """Return a reader of TOML. file: its name in errors, and where its paths begin. Raises: SettingsError (no TOML)."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}, {_told(error, text)}") from None
    return TableReader(table, file, "", os.environ if environment is None else environment, TomlPlaces(text))


def _told(error: tomllib.TOMLDecodeError, text: str) -> str:
    """Return where a text is no TOML, and why."""
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
    if found is not None:
        return f"line {found[2]}, column {found[3]}: expected TOML, found an error: {found[1]}"
    line, why = text.rstrip().count("\n") + 1, str(error).removesuffix(" (at end of document)")
    return f"line {line}, the last one: expected TOML, found an error: {why}"


class TableReader:
    """Takes keys out of a TOML table, each with the type that it must have; `done` refuses the rest."""

    def __init__(
        self, table: dict[str, Any], file: str, place: str, environment: Mapping[str, str], places: TomlPlaces
    ) -> None:
        self.file = file
        self.environment = environment
        self._places = places
        self._table = dict(table)
        self._known: dict[str, None] = {}
        """The keys that somebody has asked for, in that order."""
        self._place = place

    def error(self, key: str, expected: str, found: str) -> SettingsError:
        return self._error(key, f"expected {expected}, found {found}")

    def _error(self, key: str, fault: str) -> SettingsError:
        where = self._named(key)
        line = self._places.line(where)
        place = f"line {line}, {where}" if line else where
        return SettingsError(f"{self.file}, {place}: {fault}")

    def checked(self, key: str, text: str, check: Callable[[str], object]) -> str:
        """Return a text that a key holds, if it passes a check, which raises DataError. Raises SettingsError."""
        try:
            check(text)
        except DataError as error:
            raise self._error(key, str(error)) from None
        return text

    def done(self) -> None:
        """Refuse the keys that nobody asked for."""
        for key in self._table:
            near = get_close_matches(key, list(self._known), 1)
            advice = f"; did you mean {near[0]}?" if near else ""
            raise self.error(key, f"one of the keys {', '.join(self._known)}", f"the unknown key {key!r}{advice}")

    def names(self) -> tuple[str, ...]:
        """The keys that are left, for tables whose keys are the user's own names."""
        return tuple(self._table)

    def text_place(self, key: str, text: str) -> tuple[int, int] | None:
        """Return line and column in the file where a key's text begins; None if its lines are not those of the file."""
        return self._places.text_place(self._named(key), text)

    def has(self, key: str) -> bool:
        self._known[key] = None
        return key in self._table

    def is_table(self, key: str) -> bool:
        return isinstance(self._table.get(key), dict)

    def is_list(self, key: str) -> bool:
        return isinstance(self._table.get(key), list)

    def take(self, key: str) -> Any:
        """Return the value of a key, None without it; the caller checks it."""
        self._known[key] = None
        return self._table.pop(key, None)

    def text(self, key: str) -> str:
        value = self.optional_text(key)
        if value is None:
            raise self.error(key, "a text", "nothing")
        return value

    def optional_text(self, key: str) -> str | None:
        value = self.take(key)
        if value is not None and not (isinstance(value, str) and value):
            raise self.error(key, "a text", _found(value))
        return value

    def substituted(self, key: str) -> str:
        """A text, in which variables of the environment are replaced, or a number or a truth value as a text."""
        value = self.take(key)
        if isinstance(value, (bool, int, float)):
            return str(value).lower()
        if not isinstance(value, str) or not value:
            raise self.error(key, "a text", _found(value))
        return self.filled(key, value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, () without it; these may be empty."""
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.error(key, "a list of texts", _found(value))
        return tuple(value)

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.take(key)
        value = default if value is None else value
        if value not in choices:
            raise self.error(key, "one of " + ", ".join(map(repr, choices)), _found(value))
        return str(value)

    def integer(self, key: str, default: int | None, *, low: int = 0) -> int | None:
        value = self.take(key)
        value = default if value is None else value
        if value is not None and (type(value) is not int or value < low or value >= 1 << 63):
            raise self.error(key, f"an integer >= {low}", _found(value))
        return value

    def number(self, key: str, default: float) -> float:
        value = self.take(key)
        value = default if value is None else value
        if type(value) not in (int, float) or not 0 <= value < float("inf"):
            raise self.error(key, "a number >= 0", _found(value))
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(key)
        value = default if value is None else value
        if type(value) is not bool:
            raise self.error(key, "true or false", _found(value))
        return value

    def timing(self, key: str) -> bool | tuple[str, ...]:
        value = self.take(key)
        if value is None or value is False:
            return ()
        if value is True:
            return True
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self.error(key, "true or a list of predicate IRIs", _found(value))
        return tuple(value)

    def path(self, key: str) -> str:
        value = self.optional_path(key)
        if value is None:
            raise self.error(key, "the path of a file", "nothing")
        return value

    def optional_path(self, key: str) -> str | None:
        value = self.optional_text(key)
        return None if value is None else self._existing(key, value)

    def optional_place(self, key: str) -> str | None:
        """A path of whatever need not be there yet."""
        value = self.optional_text(key)
        return None if value is None else str(Path(self.file).parent / self.filled(key, value))

    def paths(self, key: str) -> tuple[str, ...]:
        """A path or a list of paths."""
        value = self.take(key)
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not values or not all(isinstance(one, str) and one for one in values):
            raise self.error(key, "a path or a list of paths", _found(value))
        return tuple(self._existing(key, one) for one in values)

    def table(self, key: str) -> TableReader:
        value = self.take(key)
        if value is not None and not isinstance(value, dict):
            raise self.error(key, "a table", _found(value))
        return TableReader(value or {}, self.file, self._named(key), self.environment, self._places)

    def tables(self, key: str, read: Callable[[TableReader], T]) -> tuple[T, ...]:
        """A list of tables, each read in full by `read`."""
        value = self.take(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(one, dict) for one in value)):
            raise self.error(key, f"tables, each under [[{key}]]", _found(value))
        results = []
        for index, one in enumerate(value or []):
            reader = TableReader(one, self.file, f"{self._named(key)}[{index}]", self.environment, self._places)
            results.append(read(reader))
            reader.done()
        return tuple(results)

    def _named(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key

    def _existing(self, key: str, text: str) -> str:
        path = Path(self.file).parent / self.filled(key, text)
        if not path.is_file():
            variable = _VARIABLE.search(text)
            advice = f"; {variable['name']} in the environment says where to look" if variable else ""
            what = "is none" if path.exists() else "is not there"
            raise self.error(key, "a file", f"{path}, which {what}{advice}")
        return str(path)

    def filled(self, key: str, text: str) -> str:
        """Return a text that a key holds, with what the environment has in place of `${NAME}`."""

        def value(match: re.Match[str]) -> str:
            found = self.environment.get(match["name"]) or match["default"]
            if found is None:
                raise self.error(key, f"the environment variable {match['name']} to be set", "it unset")
            return found

        return _VARIABLE.sub(value, text)


def _found(value: object) -> str:
    if value is None:
        return "nothing"
    return f"{value!r} ({type(value).__name__})"


def engine_settings(top: TableReader) -> Settings:
    """Return the options under [engine]; those of the environment where the file gives none. Raises SettingsError."""
    reader = top.table("engine")
    given: dict[str, Any] = {
        option.name: reader.integer(option.name, None)
        if "low" in option.metadata
        else reader.texts(option.name) or None
        for option in fields(Settings)
        if option.name != "contexts"
    }
    contexts = reader.table("contexts")
    given["contexts"] = tuple((iri, contexts.path(iri)) for iri in contexts.names()) or None
    reader.done()
    try:
        return Settings.from_environment(
            reader.environment, **{name: value for name, value in given.items() if value is not None}
        )
    except SettingsError as error:
        raise SettingsError(f"{reader.file}, [engine]: {error}") from None
