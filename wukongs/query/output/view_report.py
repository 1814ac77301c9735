"""ViewReport: how the content of a live view has changed between two snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from wukongs.query.output.results import Kind, Result
from wukongs.query.terms.decoding import Utf8Reader
from wukongs.store.dtypes import Int64Array

if TYPE_CHECKING:
    import pyarrow

    from wukongs.query.output.results import RdfTerm

WEIGHT_COLUMN = "weight"


class ViewReport(Result):
    """The change of a view's content over the snapshots (after, snapshot].

    query: the registered name.
    after: the SN behind which it begins.
    weights : int64[len(self)], of the rows: +n were inserted, -n deleted.
    minor: of a view with arguments, how many times some had been bound or unbound at its end; else 0.
    time_ms: the event time of the stored graph; None: no stream has closed anything.
    is_reset: the reader drops what it has; the rows are the whole content.

    The sum of all reports since the last reset is the content. A report without rows says that nothing has changed.
    An ask has one row without columns: weight +1 when the answer becomes true, -1 when it becomes false.
    """

    def __init__(
        self,
        kind: Kind,
        variables: tuple[str, ...],
        columns: tuple[Int64Array, ...],
        reader: Utf8Reader,
        snapshot: int,
        boolean: bool | None = None,
        *,
        weights: Int64Array,
        query: str,
        after: int,
        time_ms: int | None,
        is_reset: bool,
        text: str = "",
        minor: int = 0,
    ) -> None:
        super().__init__(kind, variables, columns, reader, snapshot, boolean, len(weights), text=text)
        self.weights = weights
        self.query = query
        self.after = after
        self.minor = minor
        self.time_ms = time_ms
        self.is_reset = is_reset

    @property
    def is_progress(self) -> bool:
        """Whether it only says that the view is complete up to its snapshot."""
        return not (len(self) or self.is_reset)

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + self.weights.nbytes

    def first(self, count: int) -> ViewReport:
        """Return the report with its first rows only."""
        return ViewReport(
            self.kind,
            tuple(self.vars),
            tuple(self.ids(0, count)),
            self.reader,
            self.snapshot,
            self.boolean,
            weights=self.weights[:count],
            query=self.query,
            after=self.after,
            time_ms=self.time_ms,
            is_reset=self.is_reset,
            minor=self.minor,
        )

    def changes(self) -> Iterator[tuple[tuple[RdfTerm | None, ...], int]]:
        """Iterate over (row, weight). A row of a construct is a triple, that of an ask is empty."""
        return zip(self, self.weights.tolist(), strict=True)

    def arrow(
        self, *, dictionary: bool = False, typed: bool | pyarrow.Schema = False, ids: bool = False
    ) -> pyarrow.Table:
        """Return Result.arrow with one more column, `weight` (int64)."""
        import pyarrow

        table = super().arrow(dictionary=dictionary, typed=typed, ids=ids)
        weights = self.weights
        if self.kind == "ask" and not len(weights):  # a table of one row, its answer
            return table.append_column(WEIGHT_COLUMN, pyarrow.array([0], pyarrow.int64()))
        return table.append_column(WEIGHT_COLUMN, pyarrow.array(weights, pyarrow.int64()))

    def batches(self) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
        """Return Result.batches with the columns of arrow()."""
        table = self.arrow()
        return table.schema, iter(table.to_batches())

    def _summary(self) -> str:
        kind = "reset" if self.is_reset else "progress" if self.is_progress else "change"
        return f"{self.query} ({self.after}, {self.snapshot}] {kind}, {super()._summary()}"
