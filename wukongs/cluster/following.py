"""Following: what follows by rules from the changes that are asked of one node, at a cluster (decision 0096).

The node that is asked for a load, an update or other rules evaluates it over a snapshot. It also derives what follows,
over the whole graph, and stages all of it. One record of the log makes it count, unless another change came into the
log since the snapshot: then it is evaluated again. So a change and what follows have one SN, and nobody derives it
anew: other nodes, replicas, restarts and joining nodes take what was staged.

Only such records change the stored graph while there are rules. Streams that would are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np

from wukongs.cluster.changes import Changes
from wukongs.cluster.host import Dropped, Host
from wukongs.cluster.node_payloads import ruleset_of
from wukongs.cluster.times import packed, unpacked
from wukongs.errors import BudgetExceeded, CompactedError, NodeUnavailable, RuleError, StreamError
from wukongs.live.core import Core, columns_of
from wukongs.live.reading import ids_of, open_snapshot, terms_of
from wukongs.live.update import evaluated
from wukongs.protocol.control import Control, DeclaredStream, storing_streams
from wukongs.protocol.records import Sn
from wukongs.protocol.state import Node
from wukongs.query.limits import Limits
from wukongs.rules.changing_graph import Read, gone_of
from wukongs.rules.derivation import Derivation
from wukongs.rules.inference import Inference, Ruleset
from wukongs.store.batch import build_batch
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

    def __init__(self, host: Host, core: Core, changes: Changes, wait_for: Callable[[Sn], object]) -> None:
        self._host, self._core, self._changes, self._wait_for = host, core, changes, wait_for
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
            with self._asking(control):
                inference = self._inference(control.rules)
                come, gone = change.difference()
                new = come.triples()
                new = taken(new, ~read.holds(new))
                difference = inference.follow_over(read, Difference(build_batch(*new), gone), change.come)
            rules = None
            if inference.is_changed:  # one was paused
                rules = _told(inference.ruleset)
            else:
                self._kept = control.rules, inference
            return self._submit(difference, control, read_sn, operations, rules)

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
        Changes.add; nothing has changed then."""

        def once() -> Sn:
            with self._core.lock:
                read_sn = self._core.sn
            with self._read(read_sn) as (read, control):
                before = ruleset_of(control.rules)
                after = change(before)
                if after.rules == before.rules:
                    return unpacked(read_sn)
                if after.rules:
                    self._check_streams(control, unpacked(read_sn))
                with self._asking(control):
                    inference = self._new_inference(before)
                    inference.take(after)
                    difference = inference.derive(read)
                return self._submit(difference, control, read_sn, 0, _told(after))

        with self._core.update_turn:
            return self.repeated(once, limits)

    def why(self, triple: Sequence[str], graph: str | None, limits: Limits) -> Derivation | None:
        """Do the same as Inference.why, over the newest snapshot. From any thread."""

        def once() -> Derivation | None:
            with self._core.lock:
                read_sn = self._core.sn
            with limits, self._read(read_sn) as (read, control), self._asking(control):
                inference = self._new_inference(ruleset_of(control.rules))
                return inference.why(inference.plans(), read, read_sn, triple, graph, limits)

        return self._tried(once, limits)

    def repeated(self, once: Callable[[], Sn], limits: Limits) -> Sn:
        """Make a change again as often as another one comes first, unless it was made by then."""

        def unless_known() -> Sn:
            known = self._changes.known()
            return once() if known is None else known

        return self._tried(unless_known, limits)

    def _tried(self, once: Callable[[], Outcome], limits: Limits) -> Outcome:
        forgotten = 0
        while True:
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

    def _check_streams(self, control: Control, sn: Sn) -> None:
        """Raise RuleError if tuples of a stream may join the stored graph; wait for what has come of dropped ones."""
        for stream in storing_streams(control, sn):
            if not stream.is_dropped:
                raise RuleError(
                    "streams whose tuples are all timing (timing=True)",
                    f"stream {_name(stream)}, whose tuples join the stored graph",
                    suggestion="drop it, or declare it anew with timing=True: the nodes of a cluster do not follow "
                    "rules from what streams store yet",
                )
            what = f"the end of stream {_name(stream)}, which was dropped"
            node = self._host.wait_until(partial(_has_gone, stream.key), CHANGE_S, what)
            there = node.control.streams.get(stream.key)
            if there is not None and there.gone is not None:
                self._wait_for(there.gone)
            raise Dropped(what)

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
        core = self._core
        found = Inference(ids_of(core), lambda: terms_of(core), core.default_graph, core.settings)
        found.take(ruleset)
        return found

    def _submit(self, difference: Difference, control: Control, read_sn: int, operations: int, rules: str | None) -> Sn:
        gone, come = self._encoded(gone_of(difference)), self._encoded(difference.additions.triples())
        sn = unpacked(read_sn)
        read = sn if control.rules or rules is not None else None
        return self._changes.whole(gone, come, control.last_update(sn), read, operations, rules)

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
        ids = ids_of(core).keep_all([f"<{inferred_view(text[1:-1])}>" for text in texts])
        return np.where(graphs < 0, ids[np.searchsorted(hidden, np.minimum(graphs, hidden[-1]))], graphs)


def check_declared(control: Control, name: str, options: Mapping[str, Any]) -> None:
    """Raise StreamError if a stream cannot be declared, because there are rules."""
    if control.rules and options["timing"] is not True:
        raise StreamError(
            f"stream {name} would store its tuples, and this cluster follows rules: its nodes do not follow them from "
            "what streams store yet. Declare it with timing=True (`--all-timing`), load what is to be stored, or drop "
            "the rules"
        )


def _told(ruleset: Ruleset) -> str:
    return json.dumps(ruleset.as_json()) if ruleset.rules else ""


def _has_gone(key: str, node: Node) -> bool:
    return key not in node.control.streams or node.control.streams[key].gone is not None


def _name(stream: DeclaredStream) -> str:
    return stream.key.split(" ")[0]
