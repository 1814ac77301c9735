"""A stored graph with a data folder as a state machine, against the rows that were absorbed and committed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from tests.failing_disk import FullDisk
from tests.fuzz import fuzzed
from tests.property.test_tombstones import UpdateMachine
from tests.stored_graph import Row, StoredGraph
from wukongs.errors import CompactedError, StorageError
from wukongs.store import trace as trace_module
from wukongs.store.arrangement import Arrangement
from wukongs.store.checkpoint import CheckpointStore
from wukongs.store.manifest import read_manifest
from wukongs.store.term_registry import TermRegistry
from wukongs.store.trace import Handle, Trace

TEXTS = [f"<http://t/{n}>" for n in range(12)]
OBJECTS = [*TEXTS, '"é <>"@en', '"a"', '"12"^^<http://www.w3.org/2001/XMLSchema#integer>', '""', '"x"^^<http://d>']
ROWS = st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS[:2]), st.sampled_from(OBJECTS)), max_size=12)


class CheckpointMachine(RuleBasedStateMachine):
    """The process may go at any time, and all that was not committed with it."""

    hash_bits = 62

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.disk = FullDisk(1 << 30)
        self.store = CheckpointStore(Path(self.folder.name), self.disk)
        self.log: list[tuple[int, Row]] = []
        self.ids: dict[str, int] = {}
        self.committed = 0
        self.ids_committed: dict[str, int] = {}
        self.graph = StoredGraph(self.hash_bits)
        assert self.store.open() is None

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(rows=ROWS, gap=st.sampled_from([0, 3]))
    def absorb(self, rows: list[Row], gap: int) -> None:
        if not rows:
            return
        sn = self.graph.trace.upper + gap
        known = {row for _, row in self.log}
        self.graph.absorb(rows, sn)
        self.log += [(sn, row) for row in set(rows) - known]
        self.ids |= {text: self.graph.registry.resolve(text) for row in rows for text in row}

    @rule(text=st.sampled_from(OBJECTS))
    def reserve(self, text: str) -> None:
        """A constant of a query takes an id, for as long as the process lives."""
        self.graph.registry.reserve([text])

    @rule(fuel=st.sampled_from([1, 17, 5000]))
    def merge_some(self, fuel: int) -> None:
        self.graph.trace.work(fuel)

    @rule()
    def merge_all(self) -> None:
        self.graph.trace.merge_all()

    @rule()
    def commit(self) -> None:
        self.graph.commit(self.store, {"rows": len(self.log)})
        self._note_commit()

    @rule(at=st.integers(0, 200))
    def fail_to_commit(self, at: int) -> None:
        """The disk is full from a step on; the commit fails, or it needed no more steps."""
        self.disk.at = len(self.disk.steps) + at
        before = self._number()
        try:
            self.graph.commit(self.store, {"rows": len(self.log)})
        except StorageError:
            # Only the last confirmation of the disk may be missing.
            if self._number() > before:
                self._note_commit()
        else:
            self._note_commit()
        self.disk.at = 1 << 30

    def _number(self) -> int:
        """Return the number of the last commit that is in place."""
        manifest = read_manifest(Path(self.folder.name))
        return 0 if manifest is None else manifest.number

    def _note_commit(self) -> None:
        self.committed = len(self.log)
        self.ids_committed = dict(self.ids)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = CheckpointStore(Path(self.folder.name), self.disk)
        self.graph = StoredGraph(self.hash_bits)
        restored = self.store.open()
        assert (restored is None) == (self._number() == 0)
        if restored is not None:
            assert restored.about == {"rows": self.committed}
            restored.into(self.graph.trace, self.graph.registry)
        self.log = self.log[: self.committed]
        self.ids = dict(self.ids_committed)

    @invariant()
    def every_sn_is_exact_or_refused(self) -> None:
        sns = {sn for sn, _ in self.log}
        for sn in sns | {self.graph.trace.upper}:
            try:
                found = self.graph.texts(sn)
            except CompactedError:
                assert sn < self.graph.trace.since
            else:
                assert found == sorted(row for at, row in self.log if at <= sn)

    @invariant()
    def ids_never_change_meaning(self) -> None:
        for text, term in self.ids.items():
            assert self.graph.registry.resolve(text) == term
            assert self.graph.registry.texts(np.array([term], np.int64)) == [text]


class CollidingMachine(CheckpointMachine):
    hash_bits = 2


def test_a_restart_gives_back_what_was_committed() -> None:
    run_state_machine_as_test(CheckpointMachine, settings=fuzzed(25, steps=25))


def test_a_restart_when_most_ids_are_exceptions() -> None:
    run_state_machine_as_test(CollidingMachine, settings=fuzzed(25, steps=25))


@pytest.mark.nojit
def test_a_restart_on_a_few_steps() -> None:
    run_state_machine_as_test(CollidingMachine, settings=fuzzed(1, steps=6))


class RestartedUpdateMachine(UpdateMachine):
    """Updates of a graph of which any part lies in mapped files; the terms do not matter here."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = CheckpointStore(Path(self.folder.name))
        self.store.open()

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule()
    def commit(self) -> None:
        trace = self.arrangement.trace
        self.store.commit(trace.entries(), trace.upper, TermRegistry(), {})

    @rule()
    def restart(self) -> None:
        self.commit()
        self.store.close()
        self.store = CheckpointStore(Path(self.folder.name))
        restored = self.store.open()
        assert restored is not None
        self.arrangement = Arrangement("g")
        self.arrangement.trace = Trace("g", self.fuel_per_row)
        restored.into(self.arrangement.trace, TermRegistry())
        self.open_handles.clear()

    @rule(handle=consumes(UpdateMachine.handles))
    def close(self, handle: Handle | None) -> None:
        """Close a handle, which may be of before a restart."""
        if handle is not None:
            handle.close()
            self.open_handles.pop(handle, None)


def test_updates_across_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "FUEL_MIN", 1)
    run_state_machine_as_test(RestartedUpdateMachine, settings=fuzzed(25, steps=30))
