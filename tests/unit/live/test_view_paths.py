"""Live views of paths: what a change touches, what views share, and when a path is evaluated anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import wukongs
from wukongs.incremental.iterate import Reached
from wukongs.incremental.operators import operators_of
from wukongs.incremental.searched import Searched
from wukongs.query.paths import forest, reach

P = "<http://e/p>"
COUNT = 120


@pytest.fixture
def engine() -> Iterator[Any]:
    with wukongs.Engine() as engine:
        engine.update(f"INSERT DATA {{ {' . '.join(link(at) for at in range(COUNT))} }}")
        yield engine


def node(number: int) -> str:
    return f"<http://e/{number}>"


def link(start: int, end: int | None = None) -> str:
    return f"{node(start)} {P} {node(start + 1 if end is None else end)}"


def insert(engine: Any, *triples: str) -> None:
    engine.update(f"INSERT DATA {{ {' . '.join(triples)} }}")


def delete(engine: Any, *triples: str) -> None:
    engine.update(f"DELETE DATA {{ {' . '.join(triples)} }}")


class Read:
    """A view with the sum of its reports."""

    def __init__(self, engine: Any, name: str, where: str, **options: Any) -> None:
        self.engine, self.where = engine, where
        self.view = engine.register(f"REGISTER QUERY {name} AS SELECT * WHERE {{ {where} }}", **options)
        self.sum = Counter[tuple[str | None, ...]]()
        engine.settle(30)
        self.changed()

    def changed(self) -> int:
        """Take the reports; return how many rows they have. Raises AssertionError (the sum is not the answer)."""
        self.engine.settle(30)
        count = 0
        for report in self.view.results(timeout_s=0):
            if report.is_reset:
                self.sum.clear()
            count += len(report)
            for row, weight in report.changes():
                self.sum[tuple(map(str, row))] += weight
        asked = Counter(tuple(map(str, row)) for row in self.engine.query(f"SELECT * WHERE {{ {self.where} }}"))
        assert +self.sum == asked
        return count

    @property
    def path(self) -> Reached:
        [found] = [one for _, one in operators_of(self.view.operators) if isinstance(one, Reached)]
        return found


def test_a_change_touches_what_the_changed_edges_lead_to(engine: Any) -> None:
    """of 7,260 pairs, those of an edge near the beginning."""
    insert(engine, link(1000, 1001))
    read = Read(engine, "v", f"?x {P}+ ?y")
    for at, pairs in ((COUNT - 1, COUNT), (0, COUNT), (1000, 1)):
        before = read.path.index.looked_at
        delete(engine, link(at))
        assert read.changed() == pairs
        insert(engine, link(at))
        assert read.changed() == pairs
        assert read.path.index.looked_at - before < 20 * pairs + 100
    assert read.path.index.moved_count == 6


def test_views_share_an_index_which_moves_once(engine: Any) -> None:
    insert(engine, f"{node(7)} <http://e/asks> 1")
    reads = [
        Read(engine, "v0", f"{node(5)} {P}+ ?y"),
        Read(engine, "v1", f"{node(9)} {P}+ ?y"),
        Read(engine, "v2", f"?x <http://e/asks> ?n . ?x {P}* ?y"),
        Read(engine, "v3", f"OPTIONAL {{ {node(5)} {P}+ ?y }}"),
    ]
    indexes = {id(read.path.index) for read in reads}
    assert len(indexes) == 1
    [index] = [reads[0].path.index for _ in indexes]
    assert index.walks_count == sum(COUNT - at + 1 for at in (5, 7, 9))
    for at in range(3):
        delete(engine, link(100 + at))
        assert [read.changed() > 0 for read in reads] == [at == 0] * 4 or at > 0
        insert(engine, link(100 + at))
        assert all(read.changed() for read in reads)
    assert index.moved_count == 6
    other = Read(engine, "v4", f"?x {P}+ {node(9)}")
    assert other.path.index is not index, "from the other end"


def test_a_view_that_moves_by_periods_takes_what_others_have_moved(engine: Any) -> None:
    read = Read(engine, "v0", f"{node(5)} {P}+ ?y")
    slow = Read(engine, "v1", f"{node(6)} {P}+ ?y", every_ms=3_600_000)
    for at in (50, 40, 30):
        delete(engine, link(at))
        assert read.changed() == 10 or at == 50
    assert read.path.index is slow.path.index
    assert len(read.path.index._log) == 3, "they are kept for it"
    slow.view.close()


def test_new_origins_are_followed_and_those_that_nobody_asks_for_are_not(engine: Any) -> None:
    insert(engine, *(f"{node(at)} <http://e/asks> {at}" for at in range(100)))
    read = Read(engine, "v", f"?x <http://e/asks> ?n . ?x {P}+ ?y FILTER(?n != 3)")
    insert(engine, f"{node(3)} <http://e/asks> 8", f"{node(110)} <http://e/asks> 110")
    assert read.changed() == 2 * COUNT - 113
    delete(engine, *(f"{node(at)} <http://e/asks> {at}" for at in range(1, 99)))
    read.changed()
    assert len(read.path.user.origins) == 4
    delete(engine, link(115))
    assert read.changed() == 4 * 5
    assert read.path.index._forest is not None
    assert read.path.index._forest.origin_count == 4


@pytest.mark.parametrize(
    "where", [f"{node(1)} {P}+ ?y", f"?x {P}+ ?y", f"?x {P}* ?y", f"?x <http://e/asks> ?n . ?x {P}+ ?y"]
)
def test_walks_that_take_too_much_are_not_kept(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is evaluated anew for 1, 3, 7, ... changes, and tried again."""
    monkeypatch.setattr(forest, "ENTRIES_FIRST", 16)
    monkeypatch.setattr(reach, "BYTES_MAX", 2500)
    with wukongs.Engine() as engine:
        insert(engine, f"{node(2)} <http://e/asks> 1", link(1, 2))
        read = Read(engine, "v", where)
        insert(engine, *map(link, range(2, 50)))
        read.changed()
        assert read.path.kind == "iterate (anew)"
        assert "iterate (anew)" in read.view.explain()
        assert "bytes would be kept" in read.path.user.reason
        for at in (30, 49, 20):
            delete(engine, link(at))
            read.changed()
        delete(engine, *map(link, range(3, 50)))
        for at in range(12):
            insert(engine, link(1, 70 + at))
            read.changed()
        assert read.path.kind == "iterate", "there are few walks now"


def test_large_changes_are_evaluated_anew(engine: Any) -> None:
    read = Read(engine, "v", f"{node(1)} {P}+ ?y")
    delete(engine, *(link(at) for at in range(COUNT // 4, COUNT)))
    assert read.changed() == COUNT - COUNT // 4
    assert read.path.user.reason == "much of the graph has changed at once"


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        (f"?x {P}+ ?x", "search"),
        (f"GRAPH ?g {{ ?x {P}+ ?y }}", "search"),
        (f"?x ({P}+ AS ?n) ?y", "search"),
        (f"?x {P}{{1,100}} ?y", "search"),
        (f"{node(10)} ({P}+ AS ?n) ?y", "search (from a constant)"),
        (f"?x ({P}+ AS ?n) {node(60)}", "search (from a constant)"),
        (f"{node(10)} {P}{{1,100}} {node(60)}", "search (from a constant)"),
        (f"GRAPH ?g {{ {node(10)} {P}* ?y }}", "search (from a constant)"),
        (f"{node(10)} {P}{{0}} ?y", "search (from a constant)"),
        (f"?x ({P}{{0}}/{P}{{0}}) ?y", "search"),
    ],
)
def test_other_paths_are_searched_from_the_nodes_that_are_concerned(engine: Any, where: str, kind: str) -> None:
    read = Read(engine, "v", where)
    assert kind in read.view.explain()
    for at in (50, 51):
        insert(engine, link(at, 10), f"GRAPH <http://e/g> {{ {link(at, 10)} }}")
        read.changed()
    delete(engine, link(50, 10), f"GRAPH <http://e/g> {{ {link(51, 10)} }}")
    read.changed()
    assert read.view.stats()["kept_bytes"] == 0


def test_a_path_from_a_constant_is_evaluated_where_that_leads_to_a_changed_edge(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, evaluated = Read(engine, "v", f"{node(100)} ({P}+ AS ?n) ?y"), list[int]()
    right = Searched._from
    monkeypatch.setattr(Searched, "_from", lambda self, *given: [evaluated.append(1), right(self, *given)][1])
    delete(engine, link(50))
    assert (read.changed(), len(evaluated)) == (0, 0)
    delete(engine, link(110))
    assert (read.changed(), len(evaluated)) == (COUNT - 110, 2)
