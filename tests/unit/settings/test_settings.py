from __future__ import annotations

import dataclasses

import pytest

from wukongs.errors import SettingsError
from wukongs.settings import Settings, describe, variable_of

OPTIONS = [option.name for option in dataclasses.fields(Settings)]
NUMBERS = [option.name for option in dataclasses.fields(Settings) if "low" in option.metadata]


def test_defaults() -> None:
    settings = Settings()
    assert settings.batch_ms == 100
    assert settings.history_ms == 60_000
    assert settings.results_bytes_max == 1 << 30
    assert settings.queued_bytes_max == 1024**3
    assert settings.rows_max == 50_000_000
    assert settings.hash_bits == 62
    assert Settings.from_environment({}) == settings


def test_settings_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().batch_ms = 5  # type: ignore[misc]


@pytest.mark.parametrize("name", NUMBERS)
def test_both_bounds_are_taken_and_what_lies_beyond_is_not(name: str) -> None:
    bounds = Settings.__dataclass_fields__[name].metadata
    for value in (bounds["low"], bounds["high"]):
        assert getattr(Settings(**{name: value}), name) == value
    for value in (bounds["low"] - 1, bounds["high"] + 1):
        with pytest.raises(SettingsError) as caught:
            Settings(**{name: value})
        assert str(caught.value) == (
            f"{name} = {value}: expected an integer from {bounds['low']} to {bounds['high']}, in {bounds['unit']}"
        )


def test_the_environment_sets_an_option_and_the_program_wins() -> None:
    environment = {"WUKONGS_BATCH_MS": "250", "WUKONGS_HISTORY_MS": "9", "OTHER": "x"}
    settings = Settings.from_environment(environment, history_ms=7)
    assert (settings.batch_ms, settings.history_ms) == (250, 7)


@pytest.mark.parametrize(("text", "shown"), [("-5", "-5"), ("ten", "'ten'"), ("1.5", "'1.5'"), ("", "''")])
def test_a_wrong_environment_variable_is_named(text: str, shown: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment({"WUKONGS_BATCH_MS": text})
    assert str(caught.value) == (
        f"batch_ms = {shown} (from WUKONGS_BATCH_MS): expected an integer from 1 to 3600000, in milliseconds"
    )


@pytest.mark.parametrize("value", [1.5, "100", True, None])
def test_only_integers_are_taken(value: object) -> None:
    with pytest.raises(SettingsError, match="expected an integer from 1 to 3600000, in milliseconds"):
        Settings(batch_ms=value)  # type: ignore[arg-type]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment({}, batch_size=5)
    assert str(caught.value) == f"batch_size = 5: expected one of the options {', '.join(OPTIONS)}"


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_says_its_unit_and_meaning(name: str) -> None:
    (line,) = [line for line in describe().splitlines() if line.startswith(f"{name} = ")]
    assert variable_of(name) in line
    assert Settings.__dataclass_fields__[name].metadata["doc"] in line


def test_places_to_load_from() -> None:
    places = ("http://ex.org/data/", "https://ex.org:8443/~x/a")
    assert Settings(load_from=places).load_from == places
    environment = {"WUKONGS_LOAD_FROM": f" {places[0]}  {places[1]} "}
    assert Settings.from_environment(environment).load_from == places
    assert Settings.from_environment(environment, load_from=()).load_from == ()
    assert Settings.from_environment({"WUKONGS_LOAD_FROM": ""}).load_from == ()


@pytest.mark.parametrize(
    "place",
    ["http://ex.org", "ex.org/", "http:///x", "ftp://ex.org/", "file:///", "http://me@ex.org/", "http://e/?q", "", 5],
)
def test_what_is_no_place_to_load_from(place: object) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(load_from=(place,))  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"load_from = ({place!r},): expected a tuple of how IRIs begin, host and slash at least, such as "
        "http://ex.org/data/"
    )


def test_one_text_is_no_list_of_places() -> None:
    with pytest.raises(SettingsError, match=r"load_from = 'http://ex\.org/': expected a tuple"):
        Settings(load_from="http://ex.org/")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"\('x',\) \(from WUKONGS_LOAD_FROM\): expected a tuple"):
        Settings.from_environment({"WUKONGS_LOAD_FROM": "x"})


def test_contexts_are_pairs_of_an_iri_and_a_file() -> None:
    expected = (("http://e/c", "c.jsonld"), ("http://e/?a=b", "d"))
    assert Settings(contexts=dict(expected)).contexts == expected  # type: ignore[arg-type]
    environment = {"WUKONGS_CONTEXTS": "http://e/c=c.jsonld http://e/?a=b=d"}
    assert Settings.from_environment(environment).contexts == expected
    for wrong in ("c", (("c", "d"),), (("http://e/c",),)):
        with pytest.raises(
            SettingsError, match=r"contexts = .*: expected pairs of an absolute IRI and the path of a file"
        ):
            Settings(contexts=wrong)  # type: ignore[arg-type]
