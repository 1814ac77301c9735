"""Runs wrong variants of the protocol (wrong_variants.py): the checkers must catch every one of them.

A mutant is a replacement in one module's text. The modules are loaded anew from the changed text, and the simulator's
own as well, since they name the protocol's types; nothing of this process changes for good.
`python -m tests.sim.mutants NAME --seeds N` runs one.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.sim.wrong_logs import Mutant
from tests.sim.wrong_variants import MUTANTS

PRODUCT = Path(__file__).resolve().parents[2] / "wukongs"
LOADED_ANEW = ("wukongs.protocol", "wukongs.cluster", "tests.sim.")


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, with another text. AssertionError where what is replaced is not in it once."""

    def __init__(self, mutant: Mutant) -> None:
        module = mutant.module if "." in mutant.module else f"protocol.{mutant.module}"
        self.name = f"wukongs.{module}"
        self.path = PRODUCT.joinpath(*module.split(".")).with_suffix(".py")
        text = self.path.read_text("utf-8")
        assert text.count(mutant.old) == 1, f"{mutant.name}: {text.count(mutant.old)} places in {self.path.name}"
        self.text = text.replace(mutant.old, mutant.new)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.text, str(self.path), "exec"), module.__dict__)


@contextmanager
def loaded(mutant: Mutant) -> Iterator[Any]:
    """Give the simulator of the mutant, whose protocol it is."""
    finder = Changed(mutant)
    aside = {name: module for name, module in sys.modules.items() if name.startswith(LOADED_ANEW) and name != __name__}
    for name in aside:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(f"tests.sim.{mutant.simulator}")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(LOADED_ANEW) and name != __name__]:
            del sys.modules[name]
        sys.modules.update(aside)
        for name, module in aside.items():  # importing has put those loaded anew into the packages
            package, _, own = name.rpartition(".")
            if package in sys.modules:
                setattr(sys.modules[package], own, module)


def caught_by(mutant: Mutant, seeds: range) -> tuple[int, str] | None:
    """Return the first seed that catches the mutant and what goes wrong there, None if none does."""
    with loaded(mutant) as simulator:
        found = ((seed, simulator.failure(seed)) for seed in seeds)
        return next(((seed, failure) for seed, failure in found if failure is not None), None)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description="Run wrong variants.")
    parser.add_argument("part", nargs="?", default="", help="part of the mutants' names")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--from", type=int, default=0, dest="first")
    options = parser.parse_args(arguments)
    survivors = 0
    for mutant in MUTANTS:
        if options.part in mutant.name:
            first = options.first or mutant.first
            caught = caught_by(mutant, range(first, first + options.seeds))
            survivors += caught is None
            told = "SURVIVES" if caught is None else f"seed {caught[0]}: {caught[1].splitlines()[0][:150]}"
            print(f"{mutant.name}: {told}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
