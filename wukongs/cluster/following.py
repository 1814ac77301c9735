"""Following: what follows by rules from the changes that are asked of one node, at a cluster (decision 0096).

The node that is asked for a load, an update or other rules evaluates it over a snapshot. It also derives what follows,
over the whole graph, and stages all of it. One record of the log makes it count, unless another change came into the
log since the snapshot: then it is evaluated again. So a change and what follows have one SN, and nobody derives it
anew: other nodes, replicas, restarts and joining nodes take what was staged.

Only such records change the stored graph while there are rules. The tuples of streams come by them as well: the leader
follows them (stream_following.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from wukongs.cluster.changes import Changes
from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.node_payloads import ruleset_of
from wukongs.cluster.times import packed, unpacked
from wukongs.cluster.turns import Turns
from wukongs.csparql.terms import Term
from wukongs.errors import BudgetExceeded, CompactedError, NodeUnavailable, RuleError, WukongsError
from wukongs.live.core import Core, columns_of
from wukongs.live.reading import ids_of, open_snapshot, terms_of
from wukongs.live.update import evaluated
from wukongs.protocol.control import Control, by_event_time, storing_streams
from wukongs.protocol.records import NO_RULES, Sn
from wukongs.query.limits import Limits
from wukongs.rules.changing_graph import Read, gone_of
from wukongs.rules.derivation import Derivation
from wukongs.rules.inference import Inference, Ruleset
from wukongs.store.batch import Batch, build_batch
from wukongs.store.dtypes import Int64Array
from wukongs.store.encoded import Encoded
from wukongs.store.graph_change import GraphChange
from wukongs.store.hidden_graphs import check_graphs_written, inferred_view
from wukongs.store.quads import Quads, joined, taken
from wukongs.store.term_registry import with_texts
from wukongs.store.tombstones import Difference

Outcome = TypeVar("Outcome")
ROWS_AT_A_TIME = 1 << 17
ATTEMPTS = 5
"""How often a change is evaluated whose snapshot was forgotten by some node meanwhile."""
CHANGE_S = 10.0
"""So long it waits for the others to go on without a node that does not answer."""


class Following:
    """wait_for: returns once reads here see an SN. Changes are evaluated one after the other: with Core.update_turn
    held."""

    def __init__(
        self, host: Host, core: Core, changes: Changes, turns: Turns, wait_for: Callable[[Sn], object]
    ) -> None:
        self._host, self._core, self._changes = host, core, changes
        self._turns, self._wait_for = turns, wait_for
        self._kept: tuple[str, Inference] | None = None
        """The rules by the log, and what has followed them, with its plans."""

    @property
    def has_rules(self) -> bool:
        return bool(self._host.node.control.rules)

    def ruleset(self) -> Ruleset:
        """Return the rules that the newest change has left."""
        return ruleset_of(self._host.node.control.rules)

    # --- changes ------------------------------------------------------------------------------------------------------

    def change(self, read_sn: int, change: GraphChange, operations: int) -> Sn:
        """Let a change of a snapshot count, with all that follows; return its SN once reads here see it. With
        Core.update_turn held. Raises Dropped (the snapshot is not the newest any more), CompactedError, and as
        Changes.add."""
        with self._read(read_sn) as (read, control):
            come, gone = change.difference()
            difference, rules = self._followed(read, control, come.triples(), gone, change.come)
            return self._submit(difference, control, read_sn, control.last_update(unpacked(read_sn)), operations, rules)

    def store(self, gone: Quads, come: Quads, follows: Mapping[str, int]) -> Sn:
        """Let quads go if they are there, and others come, none of which does both, over the newest snapshot, as
        `change` does. follows: as in records.Change."""
        with self._core.lock:
            read_sn = self._core.sn
        with self._read(read_sn) as (read, control):
            with self._asking(control):
                held = taken(gone, read.holds(gone))
            tombstones = build_batch(*held) if len(held[0]) else None
            difference, rules = self._followed(read, control, come, tombstones, come)
            return self._submit(difference, control, read_sn, None, 0, rules, follows)

    def store_late(self, come: Encoded, gone: Encoded, graph: int, limits: Limits) -> Sn:
        """Do as `store` for late tuples of a stream, those without a graph of their own in `graph`."""
        ids = ids_of(self._core)
        quads = [columns_of([ids.confirm(part)[0]], graph) for part in (gone, come)]
        return self.repeated(lambda: self._store_in_turn(quads[0], quads[1]), limits)

    def _store_in_turn(self, gone: Quads, come: Quads) -> Sn:
        with self._core.update_turn:
            return self.store(gone, come, {})

    def _followed(
        self, read: Read, control: Control, come: Quads, gone: Batch | None, asserted: Quads
    ) -> tuple[Difference, str | None]:
        """Return a change with all that follows from it, and the rules, if one was paused. come: those that are there
        are passed over; gone: these are there."""
        with self._asking(control):
            inference = self._inference(control.rules)
            new = taken(come, ~read.holds(come))
            difference = inference.follow_over(read, Difference(build_batch(*new), gone), asserted)
        if inference.is_changed:
            return difference, _told(inference.ruleset)
        self._kept = control.rules, inference
        return difference, None

    def load(self, chunks: Iterable[Encoded], graph: int, limits: Limits) -> Sn:
        """Add tuples, those without a graph of their own to `graph`: all of them are here at once. Raises as
        Changes.add."""
        ids, core = ids_of(self._core), self._core
        parts, size = list[Quads](), 0
        for chunk in chunks:
            check_graphs_written(chunk)
            parts.append(columns_of([ids.confirm(chunk)[0]], graph))
            size += 4 * parts[-1][0].nbytes
            if size > core.settings.load_bytes_max:
                raise BudgetExceeded(
                    f"a load under rules is read whole by its node, and takes more than load_bytes_max = "
                    f"{core.settings.load_bytes_max} bytes: load it in smaller parts, or raise load_bytes_max"
                )
        quads = joined(parts)

        def once() -> Sn:
            with evaluated(core, (), limits) as (_, read_sn, change):
                change.insert(quads)
                return self.change(read_sn, change, 0)

        with core.update_turn:
            return self.repeated(once, limits)

    def change_rules(self, change: Callable[[Ruleset], Ruleset], limits: Limits) -> Sn:
        """Have other rules; return the SN from which on all that follows by them is there. Raises RuleError, and as
        Changes.add; nothing has changed then.

        Between the snapshot and the record nothing may be stored. So if there are streams that store, changes are to
        store their tuples first, as if there were rules."""

        def once() -> Sn:
            with self._core.lock:
                read_sn = self._core.sn
            with self._read(read_sn) as (read, control):
                before = ruleset_of(control.rules)
                after = change(before)
                if after.rules == before.rules:
                    return unpacked(read_sn)
                if after.rules and (streams := by_event_time(control)):
                    raise RuleError(
                        "no streams whose signs go by event time beside rules on a cluster",
                        ", ".join(streams),
                        suggestion="drop_stream them, declare them without retractions, or use an engine of one "
                        "process",
                    )
                if after.rules and not control.rules and any(storing_streams(control, unpacked(read_sn))):
                    self._changes.say(rules=NO_RULES)
                    raise Dropped("the tuples of streams are stored by changes from now on")
                with self._asking(control):
                    inference = self._new_inference(before)
                    inference.take(after)
                    difference = inference.derive(read)
                after_update = control.last_update(unpacked(read_sn))
                return self._submit(difference, control, read_sn, after_update, 0, _told(after))

        try:
            with self._core.update_turn:
                return self.repeated(once, limits)
        finally:
            if self._host.node.control.rules == NO_RULES:
                with suppress(WukongsError):  # whoever changes rules next may say so as well
                    self._changes.say(rules="")

    def why(self, triple: Sequence[str], graph: str | None, limits: Limits) -> Derivation | None:
        """Do the same as Inference.why, over the newest snapshot. From any thread."""

        def once() -> Derivation | None:
            with self._core.lock:
                read_sn = self._core.sn
            with limits, self._read(read_sn) as (read, control), self._asking(control):
                inference = self._new_inference(ruleset_of(control.rules))
                return inference.why(inference.plans(), read, read_sn, triple, graph, limits)

        return self._tried(once, limits, changes=False)

    def inference(self) -> Inference:
        """Return what explains triples by the rules that hold now."""
        return self._new_inference(ruleset_of(self._host.node.control.rules))

    def repeated(self, once: Callable[[], Sn], limits: Limits) -> Sn:
        """Make a change again as often as another one comes first, unless it was made by then."""

        def unless_known() -> Sn:
            known = self._changes.known()
            return once() if known is None else known

        return self._tried(unless_known, limits)

    def _tried(self, once: Callable[[], Outcome], limits: Limits, *, changes: bool = True) -> Outcome:
        """changes: it has to come between what is followed of streams."""
        forgotten = 0
        with self._turns.asked() as ask:
            while True:
                if changes:
                    ask()
                try:
                    return once()
                except Dropped:
                    limits.check()
                    self._wait_for(self._host.node.control.changed)
                except CompactedError:  # a node has merged beyond what was read: it has just joined, or this took long
                    limits.check()
                    forgotten += 1
                    if forgotten == ATTEMPTS:
                        raise

    # --- one evaluation -----------------------------------------------------------------------------------------------

    @contextmanager
    def _read(self, sn: int) -> Iterator[tuple[Read, Control]]:
        """Give the stored graph at an SN, held meanwhile, and what the log says of it. Raises Dropped: something was
        changed behind it."""
        core = self._core
        with core.lock:
            handle = open_snapshot(core, sn, "rules")
            own = handle.read()
        try:
            control = self._host.node.control  # a change that it does not have yet makes void what follows from it
            if packed(control.changed) > sn:
                raise Dropped(f"another change was made behind SN {sn}")
            divided = None if core.reach is None else core.reach.graph(own, sn)
            yield Read(own, divided), control
        finally:
            with core.lock:
                handle.close()

    @contextmanager
    def _asking(self, control: Control) -> Iterator[None]:
        """Let other nodes be asked. If one does not answer, wait until the others go on without it, and raise Dropped:
        then others are asked. Raises NodeUnavailable if they do not."""
        try:
            yield
        except NodeUnavailable:
            self._host.check()
            try:
                self._host.wait_until(lambda node: node.control.view != control.view, CHANGE_S, "a change of members")
            except NodeUnavailable:
                self._host.check()
            else:
                raise Dropped("the members of the cluster have changed") from None
            raise

    def _inference(self, rules: str) -> Inference:
        """Return what follows the rules, as it was kept or anew. After an error it is not to be used again."""
        kept, self._kept = self._kept, None
        return kept[1] if kept is not None and kept[0] == rules else self._new_inference(ruleset_of(rules))

    def _new_inference(self, ruleset: Ruleset) -> Inference:
        core = self._core  # other nodes change the graph, too, and what was followed may not come to count: no ranks
        found = Inference(ids_of(core), lambda: terms_of(core), core.default_graph, core.settings, has_ranks=False)
        found.take(ruleset)
        return found

    def _submit(
        self,
        difference: Difference,
        control: Control,
        read_sn: int,
        after: int | None,
        operations: int,
        rules: str | None,
        follows: Mapping[str, int] = MappingProxyType({}),
    ) -> Sn:
        gone, come = self._encoded(gone_of(difference)), self._encoded(difference.additions.triples())
        read = unpacked(read_sn) if control.rules or rules is not None else None
        return self._changes.whole(gone, come, after, read, operations, rules, follows)

    def _encoded(self, quads: Quads) -> Iterator[Encoded]:
        """Yield quads with the texts of their terms, some at a time. Hidden graphs have the names of their views."""
        core = self._core
        if len(quads[0]):
            quads = self._named(quads[0]), *quads[1:]
        for first in range(0, len(quads[0]), ROWS_AT_A_TIME):
            some = tuple(column[first : first + ROWS_AT_A_TIME] for column in quads)
            yield with_texts((some[0], some[1], some[2], some[3]), terms_of(core).gather)

    def _named(self, graphs: Int64Array) -> Int64Array:
        core, hidden = self._core, np.unique(graphs[graphs < 0])
        if not len(hidden):
            return graphs
        texts = terms_of(core).texts(np.invert(hidden))
        ids = ids_of(core).keep_all([f"<{inferred_view(Term(text).name)}>" for text in texts])
        return np.where(graphs < 0, ids[np.searchsorted(hidden, np.minimum(graphs, hidden[-1]))], graphs)


def _told(ruleset: Ruleset) -> str:
    return json.dumps(ruleset.as_json()) if ruleset.rules else ""
