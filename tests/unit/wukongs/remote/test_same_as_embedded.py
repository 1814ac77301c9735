"""The engine's own scenarios through a client: the tests of the embedded engine, with the fixture of this folder.

Left out are those that make an engine themselves, or look inside of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from wukongs.remote.client import RemoteEngine

pytestmark = pytest.mark.nojit

MODULES = [
    import_module(f"tests.unit.wukongs.test_{name}")
    for name in (
        "bindings",
        "count_windows",
        "engine_delivery",
        "engine_errors",
        "engine_functions",
        "engine_language",
        "engine_streams",
        "engine_update",
        "named_windows",
        "rdf12",
        "reporting",
    )
]


def scenarios(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the tests of a module that are given an engine, and nothing else."""
    found = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    return {name: test for name, test in found.items() if is_scenario(test)}


def is_scenario(test: Callable[..., Any]) -> bool:
    names = inspect.unwrap(test).__code__.co_names
    return "engine" in inspect.signature(test).parameters and not {"_core", "Pipe"} & set(names)


for module in MODULES:
    assert not scenarios(module).keys() & globals().keys(), module
    globals().update(scenarios(module))


def test_the_engine_of_these_tests_is_a_client(engine: object) -> None:
    assert isinstance(engine, RemoteEngine)
    assert sum(len(scenarios(module)) for module in MODULES) > 140
