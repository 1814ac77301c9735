"""store/bulk.py: a file read in runs by several threads holds what it holds read from start to end."""

from __future__ import annotations

import contextlib
import gzip
import io
import threading
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.quads import batch_of, quads_of, spread
from wukongs.errors import DataError
from wukongs.store import bulk
from wukongs.store.bulk import BulkPlan, FilePart, InTurn, RunStack, read_runs
from wukongs.store.encoded import MalformedLine
from wukongs.store.rdf_files import RdfReader, read_rdf
from wukongs.store.term_registry import TermRegistry

GRAPH = spread(99)
TINY = BulkPlan(workers=3, chunk_bytes=64, run_rows=7)
LINES = st.one_of(
    st.tuples(st.sampled_from("abc"), st.sampled_from("pq"), st.sampled_from(["<e:x>", '"1"', "_:b", '"é"@en'])).map(
        lambda t: f"<e:{t[0]}> <e:{t[1]}> {t[2]} ."
    ),
    st.sampled_from(["<e:a> <e:p> <e:x> <e:g> .", "# a comment", "", "<e:a> <e:p> oops .", "nothing"]),
)


def runs_of(
    path: Path, plan: BulkPlan = TINY, hash_bits: int = 62, **options: int
) -> tuple[list[FilePart], TermRegistry]:
    registry = TermRegistry(hash_bits)
    with RdfReader(path, scope=b"s", hash_bits=hash_bits) as reader:
        return list(read_runs(reader, registry, GRAPH, plan, **options)), registry


def texts_in(runs: list[FilePart], registry: TermRegistry) -> set[tuple[str, ...]]:
    found = set()
    for run in runs:
        columns = [registry.texts(column) for column in run.batch.triples()[1:]]
        graphs = [
            "" if g == GRAPH else registry.texts(run.batch.triples()[0][i : i + 1])[0]
            for i, g in enumerate(run.batch.triples()[0].tolist())
        ]
        found |= set(zip(graphs, *columns, strict=True))
    return found


def read_alone(path: Path) -> tuple[set[tuple[str, ...]], list[MalformedLine], int]:
    registry, malformed, count, found = TermRegistry(), [], 0, set()
    for piece in read_rdf(path, scope=b"s", on_malformed=lambda _, line: malformed.append(line)):
        encoded, _ = registry.confirm(piece)
        count += len(encoded)
        columns = [registry.texts(c) for c in (encoded.subjects, encoded.predicates, encoded.objects)]
        graphs = [
            "" if g < 0 else registry.texts(encoded.graphs[i : i + 1])[0] for i, g in enumerate(encoded.graphs.tolist())
        ]
        found |= set(zip(graphs, *columns, strict=True))
    return found, malformed, count


@given(st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"])), max_size=40), st.sampled_from([2, 62]))
@fuzzed(60)
def test_runs_hold_what_the_file_holds(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, str]], hash_bits: int
) -> None:
    path = tmp_path_factory.mktemp("runs") / "x.nq"
    path.write_bytes("".join(text + end for text, end in lines).encode())
    expected, malformed, count = read_alone(path)
    runs, registry = runs_of(path, hash_bits=hash_bits)
    assert texts_in(runs, registry) == expected
    assert [line for run in runs for line in run.malformed] == malformed
    assert sum(run.read_count for run in runs) == count
    assert runs[-1].stop == path.stat().st_size
    # Whatever run was the last that was kept, the file goes on behind it.
    kept = runs[: len(runs) // 2]
    if kept:
        more, more_registry = runs_of(path, start=kept[-1].stop, first_line=kept[-1].next_line)
        assert texts_in(kept, registry) | texts_in(more, more_registry) == expected
        assert [line for run in kept + more for line in run.malformed] == malformed


@pytest.mark.parametrize("ending", ["nt", "nt.gz", "ttl"])
def test_every_kind_of_file(tmp_path: Path, ending: str) -> None:
    text = "".join(f"<e:{n}> <e:p> <e:{n + 1}> .\n" for n in range(40)).encode()
    path = tmp_path / f"x.{ending}"
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    runs, registry = runs_of(path)
    assert len(texts_in(runs, registry)) == 40
    if ending != "ttl":
        assert len(runs) > 3
        more, more_registry = runs_of(path, start=runs[2].stop, first_line=runs[2].next_line)
        assert len(texts_in(more, more_registry)) == 40 - sum(run.read_count for run in runs[:3])
    assert runs[-1].read_bytes == path.stat().st_size


@pytest.mark.parametrize("text", ["", "\n# nothing\n"])
def test_a_file_without_tuples_is_one_empty_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.nt"
    path.write_text(text)
    (run,), _ = runs_of(path)
    assert (len(run.batch), run.read_count, run.stop) == (0, 0, len(text))


def test_strict_names_the_line_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.nt"
    path.write_text("<e:a> <e:p> <e:b> .\n" * 50 + "oops\n" + "<e:a> <e:p> <e:b> .\n" * 50)
    with pytest.raises(DataError, match=r"x\.nt, line 51, column 1: "):
        runs_of(path, strict=True)


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.nt"
    path.write_text("<e:a> <e:p> <e:b> .\n" * 50)
    with RdfReader(path) as reader:
        path.write_text("<e:a> <e:p> <e:b> .\n" * 20)
        with pytest.raises(DataError, match=r"x\.nt: the file has become shorter"):
            list(read_runs(reader, TermRegistry(), GRAPH, TINY))


def test_threads_end_with_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "x.nt"
    path.write_text("<e:a> <e:p> <e:b> .\n" * 500)
    with RdfReader(path) as reader:
        runs = read_runs(reader, TermRegistry(), GRAPH, TINY)
        next(runs)
        runs.close()
    for thread in [thread for thread in threading.enumerate() if thread.name.startswith("wukongs-load")]:
        thread.join(60)  # a run that is sorted is sorted to its end
        assert not thread.is_alive()


def test_no_call_is_made_behind_one_that_failed() -> None:
    made: list[int] = []
    may_go_on = threading.Event()

    def call(number: int) -> None:
        may_go_on.wait(60)
        made.append(number)
        if number == 1:
            raise ValueError("the second one")

    turns = InTurn("wukongs-test")
    with contextlib.closing(turns):
        for number in range(4):
            turns.add(partial(call, number), ahead=9)
        may_go_on.set()
        with pytest.raises(ValueError, match="the second one"):
            turns.finish()
        turns.finish()
    assert made == [0, 1]


def test_whoever_adds_too_many_calls_waits() -> None:
    begun, may_end = threading.Semaphore(0), threading.Semaphore(0)
    added: list[int] = []

    def call() -> None:
        begun.release()
        may_end.acquire(timeout=60)

    def add_three(turns: InTurn) -> None:
        for number in range(3):
            turns.add(call)
            added.append(number)

    with contextlib.closing(InTurn("wukongs-test")) as turns:
        adding = threading.Thread(target=add_three, args=(turns,))
        adding.start()
        assert begun.acquire(timeout=60)
        assert added in ([], [0])
        may_end.release()
        assert begun.acquire(timeout=60)
        assert added in ([0], [0, 1])
        may_end.release(2)
        adding.join(60)
        turns.finish()
    assert added == [0, 1, 2]


def test_garbage_is_not_gathered_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wukongs.store.bulk.MALFORMED_MAX", 10)
    with RdfReader(io.BytesIO(b"oops\n" * 200), "nt") as reader:
        runs = list(read_runs(reader, TermRegistry(), GRAPH, TINY))
    assert sum(len(run.malformed) for run in runs) == 200
    assert max(len(run.malformed) for run in runs) < 10 + TINY.chunk_bytes // 5 + 1


def test_a_plan_keeps_to_its_bytes() -> None:
    small, large = BulkPlan.of(1 << 20, 2), BulkPlan.of(1 << 40, 2)
    assert small.chunk_bytes < large.chunk_bytes
    assert small.run_rows < large.run_rows == 1 << 22
    assert BulkPlan.of(1 << 30, 8).chunk_bytes < BulkPlan.of(1 << 30, 2).chunk_bytes


@given(st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=12))
@fuzzed(40)
def test_a_stack_of_runs_is_their_union(parts: list[list[int]]) -> None:
    stack = RunStack()
    for part in parts:
        stack.add(batch_of([(GRAPH, spread(n % 7), spread(3), spread(n)) for n in part]))
    expected = sorted({(GRAPH, spread(n % 7), spread(3), spread(n)) for part in parts for n in part})
    assert quads_of(stack.to_batch()) == expected


def test_more_runs_than_one_batch_holds_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "VALUES_MAX", 5)
    stack = RunStack()
    stack.add(batch_of([(GRAPH, spread(n), spread(3), spread(n)) for n in range(4)]))
    stack.add(batch_of([(GRAPH, spread(9), spread(3), spread(9))]))
    with pytest.raises(DataError, match="more than 5 tuples"):
        stack.add(batch_of([(GRAPH, spread(8), spread(3), spread(8))]))
