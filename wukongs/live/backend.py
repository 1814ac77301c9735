"""Backend: decides on the changes of an engine and carries them out. An Engine checks and parses what it is called
with, and reads its core; everything else it asks of its backend.

An engine of its own has an EmbeddedBackend: each change is committed to the journal, then applied, under the core's
lock. A node of a cluster has a ClusterBackend (wukongs.cluster.cluster_backend), which asks the other nodes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from wukongs.csparql.algebra import Output, Query
from wukongs.csparql.terms import Term
from wukongs.live.lateness import LateTuples
from wukongs.live.query_source import QuerySource
from wukongs.live.stream import Stream
from wukongs.live.table_change import Change
from wukongs.live.window_log import Cursor, WindowLog
from wukongs.query.limits import Limits
from wukongs.query.output.results import WindowResult
from wukongs.rules.derivation import Derivation
from wukongs.rules.inference import InstalledRule, Ruleset
from wukongs.store.encoded import Encoded

if TYPE_CHECKING:
    from wukongs.live.views.caller import OnReport
    from wukongs.live.views.live_view import LiveView
    from wukongs.live.views.options import ViewOptions
    from wukongs.store.rdf_files import OnMalformed, RdfReader

OnResult = Callable[[WindowResult], object]


class RegisteredQuery(Protocol):
    """The methods of a registered query: a ContinuousQuery, one that fires with others of its shape, or one that
    another node of a cluster runs."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> QuerySource: ...
    @property
    def is_stream(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def log(self) -> WindowLog: ...
    def results(self, timeout_s: float | None = None, *, group: str | None = None) -> Iterator[WindowResult]: ...
    def aresults(self, timeout_s: float | None = None, *, group: str | None = None) -> AsyncIterator[WindowResult]: ...
    def cursor(self, group: str | None = None) -> Cursor: ...
    def explain(self, *, analyze: bool = False) -> str: ...
    def stats(self) -> dict[str, Any]: ...
    def why(self, row: Mapping[str, Any] | None = None) -> str: ...
    def warnings(self) -> tuple[str, ...]: ...
    def replace(self, text: str, base: str | None = None, output: Output | None = None) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


def query_from(queries: Iterable[RegisteredQuery], source: QuerySource) -> RegisteredQuery | None:
    """Return the query that was registered with this very source, or replaced by it, and is not closed."""
    return next((query for query in queries if query.source == source and not query.is_closed), None)


class Backend(Protocol):
    """Each method does what the method of Engine does that asks it, and raises as that one. Any thread may call it.

    recovered_rules: the names of rules that were found in the data folder, and that no query was registered for since.
    """

    recovered_rules: set[str]

    @property
    def view(self) -> int:
        """A number that changes when the cluster's members do: a read that has failed may then be tried again."""

    @property
    def ingest_addresses(self) -> tuple[str, ...] | None:
        """Where pipelines find the nodes of a cluster, in the order of their numbers. None: there is no cluster, and an
        engine opens a socket for them when it is asked to."""

    def begin_read(self, limits: Limits) -> None:
        """Return once this node may answer a one-shot read, at or behind the SN that its client was told
        (wukongs.consistency). Raises NodeUnavailable, QueryTimeout."""

    def end_read(self, sn: int, limits: Limits) -> None:
        """Return once nobody reads what is older than the changes that a read at an SN has seen. Raises as
        begin_read."""

    def load(self, number: int, reader: RdfReader, graph: Term | None, on_malformed: OnMalformed | None) -> int:
        """number: of the load, as bulk_load.open_file has counted it; graph: that of triples without one of their own;
        on_malformed: is told each malformed line, None: the first one is an error."""

    def update(self, operations: Sequence[Change], limits: Limits, only: tuple[str, ...] | None = None) -> int:
        """only: the graphs that it may read and write (None: all)."""

    def change_rules(self, change: Callable[[Ruleset], Ruleset]) -> int:
        """change: makes other rules of those that there are."""

    def rules(self) -> list[InstalledRule]: ...

    def why(self, triple: Sequence[str], graph: str | None, limits: Limits) -> Derivation | None:
        """triple: canonical terms; graph: its IRI."""

    def fill(self, number: int, chunks: Iterable[Encoded]) -> int:
        """Add the stored triples of another engine, with the blank nodes that they have, as one more snapshot; return
        its SN. number: of this load, higher than those that have named blank nodes so far, also over there."""

    def declare(self, name: str, options: dict[str, Any], late: LateTuples) -> Stream:
        """options: as stream_options has made them; late: is given the late tuples."""

    def declared(self, name: str) -> Stream:
        """Return a stream that somebody has declared. Raises StreamError (unknown)."""

    def drop(self, stream_iri: str) -> None: ...

    def register(self, query: Query, source: QuerySource, on_result: OnResult | None) -> RegisteredQuery:
        """query: what parse_continuous has made of its source."""

    def check_views(self, query: Query) -> None:
        """Raise StreamError where there are no live views."""

    def register_view(
        self, query: Query, source: QuerySource, options: ViewOptions, on_result: OnReport | None
    ) -> LiveView:
        """query: what parse_registered has made of its source."""

    def settle(self, timeout_s: float | None) -> None: ...
    def queries(self) -> Sequence[RegisteredQuery]:
        """Return the registered queries with windows."""

    def views(self) -> Sequence[LiveView]:
        """Return the live views."""

    def stats(self) -> dict[str, Any]: ...
    def checkpoint(self) -> None: ...
    def backup(self, folder: Path) -> None: ...
    def drain(self, node: int, to: Sequence[int] | None, timeout_s: float | None) -> None: ...
    def add_node(self, clients: str, peers: str, public_key: str, timeout_s: float | None) -> int: ...
    def remove_node(self, node: int, timeout_s: float | None) -> None: ...
    def close(self) -> None: ...
