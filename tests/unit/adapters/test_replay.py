"""Sources to a node in this process: nothing lost, nothing twice, cut and marked as the streams say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.adapters.conftest import Listen
from tests.unit.adapters.receiver import RecordingNode, StreamSettings
from wukongs.adapters import planner as planner_module
from wukongs.adapters.replay import PipelineReport, replay
from wukongs.adapters.run_config import PipelineConfig, StreamConfig, TimestampedSource
from wukongs.errors import NodeUnavailable, StreamError
from wukongs.live.pieces import Piece
from wukongs.wire.link import IngestLink


def _stream(tmp_path: Path, lines: list[str], name: str = "s") -> StreamConfig:
    path = tmp_path / f"{name}.nt"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return StreamConfig(iri=f"http://ex/{name}", sources=(TimestampedSource(paths=(str(path),)),))


def _line(row: int, time: int, predicate: str = "p") -> str:
    return f'<http://ex/s{row}> <http://ex/{predicate}> "v{row}" . {time}'


def _run(stream: StreamConfig, address: str, config: PipelineConfig | None = None) -> PipelineReport:
    with IngestLink([address], timeout_s=20) as link:
        return replay([stream], link, config, epoch=1)


def test_stream_batches_are_cut_by_ceil_and_pieces_tile_the_rows(listen: Listen, tmp_path: Path) -> None:
    times = [0, 1, 100, 101, 200, 201, 201, 500]
    node = RecordingNode(s=StreamSettings(100))
    report = _run(_stream(tmp_path, [_line(row, time) for row, time in enumerate(times)]), listen(node))
    assert dict(node.batches) == {
        ("http://ex/s", number): count for number, count in ((0, 1), (1, 2), (2, 2), (3, 2), (5, 1))
    }
    assert [time for time, _ in node.tuples["http://ex/s"]] == times
    assert [number for kind, _, _, number in node.events if kind == "piece"] == [1, 3, 5, 7, 8]
    assert (report.rows, report.triples, report.pieces, report.finished) == (8, 8, 5, True)
    assert [kind for kind, *_ in node.events][-2:] == ["close", "finish"]


def test_rows_that_are_set_aside_leave_no_gap_and_are_counted(listen: Listen, tmp_path: Path) -> None:
    lines = ["broken", _line(1, 50), "broken", _line(3, 20), _line(4, 150), "broken"]
    node = RecordingNode(s=StreamSettings(100))
    report = _run(_stream(tmp_path, lines), listen(node))
    assert [time for time, _ in node.tuples["http://ex/s"]] == [50, 150]
    assert (report.triples, report.malformed, report.backwards, report.set_aside) == (2, 3, 1, 4)
    assert [(one.line, one.reason[:8]) for one in report.examples] == [
        (1, "expected"),
        (3, "expected"),
        (6, "expected"),
        (4, "its time"),
    ]


def test_a_source_of_garbage_alone_still_finishes(listen: Listen, tmp_path: Path) -> None:
    node = RecordingNode(s=StreamSettings(100))
    report = _run(_stream(tmp_path, ["broken", "broken"]), listen(node))
    assert (report.triples, report.malformed, report.finished) == (0, 2, True)
    assert node.finished() == {"s.nt"}


def test_timing_predicates_are_marked(listen: Listen, tmp_path: Path) -> None:
    node = RecordingNode(s=StreamSettings(100, ("http://ex/ga", "http://ex/gb")))
    lines = [_line(0, 1, "ga"), _line(1, 2, "po"), _line(2, 3, "gb")]
    report = _run(_stream(tmp_path, lines), listen(node))
    assert node.timing["http://ex/s"] == [True, False, True]
    assert report.timing_triples == 2


def test_a_second_replay_sends_only_what_is_new(listen: Listen, tmp_path: Path) -> None:
    node, lines = RecordingNode(s=StreamSettings(100)), [_line(row, row * 10 + 1) for row in range(50)]
    address = listen(node)
    first = _run(_stream(tmp_path, lines[:30]), address)
    assert first.complete_ms == 300
    again = _run(_stream(tmp_path, lines), address)
    assert again.triples == 20
    assert [time for time, _ in node.tuples["http://ex/s"]] == [row * 10 + 1 for row in range(50)]


def test_rows_added_to_a_stream_batch_that_was_declared_complete_are_refused(listen: Listen, tmp_path: Path) -> None:
    node = RecordingNode(s=StreamSettings(100))
    address = listen(node)
    _run(_stream(tmp_path, [_line(0, 120)]), address)
    with pytest.raises(StreamError, match="a tuple at 150 ms came after everything up to 200 ms was declared complete"):
        _run(_stream(tmp_path, [_line(0, 120), _line(1, 150)]), address)


def test_a_start_time_leaves_earlier_rows_out_without_a_gap(listen: Listen, tmp_path: Path) -> None:
    node = RecordingNode(s=StreamSettings(100))
    stream = _stream(tmp_path, [_line(row, row * 10) for row in range(50)])
    report = _run(stream, listen(node), PipelineConfig(start_ms=95, stop_ms=300))
    assert [time for time, _ in node.tuples["http://ex/s"]] == list(range(100, 301, 10))
    assert report.finished


def test_chunks_of_one_epoch_join_without_a_seam(
    listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_module, "CHUNK_ROWS", 7)
    lines = [_line(row, row // 2) if row % 9 else "broken" for row in range(100)]
    node = RecordingNode(s=StreamSettings(100))
    report = _run(_stream(tmp_path, lines), listen(node))
    assert len(node.tuples["http://ex/s"]) == 88
    assert report.malformed == 12


def test_blank_nodes_are_the_streams_own(listen: Listen, tmp_path: Path) -> None:
    node = RecordingNode(s=StreamSettings(100), t=StreamSettings(100))
    address = listen(node)
    for name in ("s", "t"):
        _run(_stream(tmp_path, ["_:b <http://ex/p> _:b . 1", "_:b <http://ex/p> _:c . 900"], name), address)
    one, other = ([triple for _, triple in node.tuples[f"http://ex/{name}"]] for name in ("s", "t"))
    assert one[0][0] == one[0][2] == one[1][0] != one[1][2]
    assert other[0][0] != one[0][0]


def test_three_nodes_get_every_tuple_at_the_owners_of_its_ends(listen: Listen, tmp_path: Path) -> None:
    nodes = [RecordingNode(s=StreamSettings(100)) for _ in range(3)]
    stream = _stream(tmp_path, [_line(row, row) for row in range(400)])
    with IngestLink([listen(node) for node in nodes]) as link:
        report = replay([stream], link, epoch=1)
    found = [set(node.tuples["http://ex/s"]) for node in nodes]
    assert report.triples == len(set.union(*found)) == 400
    assert sum(map(len, found)) > 400
    assert all(len(node.tuples["http://ex/s"]) == len(one) for node, one in zip(nodes, found, strict=True))
    assert all(node.finished() for node in nodes)


def test_an_unknown_stream_is_named(listen: Listen, tmp_path: Path) -> None:
    with pytest.raises(StreamError, match=r"there is no stream http://ex/s\. Declare it first"):
        _run(_stream(tmp_path, [_line(0, 1)]), listen(RecordingNode()))


def test_an_older_writer_is_locked_out(listen: Listen, tmp_path: Path) -> None:
    node = RecordingNode(s=StreamSettings(100))
    address, stream = listen(node), _stream(tmp_path, [_line(0, 1)])
    with IngestLink([address]) as link:
        link.open("http://ex/s", "s.nt", 9)
        with pytest.raises(StreamError, match=r"writer 1 is locked out by the newer writer 9"):
            replay([stream], link, epoch=1)


def test_a_node_that_stops_answering_is_reported(listen: Listen, tmp_path: Path) -> None:
    class Stuck(RecordingNode):
        def inject(self, piece: Piece, /) -> None:
            import time

            time.sleep(1.5)

    stream = _stream(tmp_path, [_line(0, 1)])
    address = listen(Stuck(s=StreamSettings(100)))
    with IngestLink([address], timeout_s=0.5) as link, pytest.raises(NodeUnavailable, match=address):
        replay([stream], link, epoch=1)


def test_progress_is_told_after_every_epoch(listen: Listen, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    node = RecordingNode(s=StreamSettings(100))
    stream = _stream(tmp_path, [_line(row, row * 100) for row in range(30)])
    with IngestLink([listen(node)]) as link:
        replay(
            [stream],
            link,
            PipelineConfig(rows_per_epoch=10),
            on_progress=lambda report: seen.append((report.triples, report.complete_ms)),
        )
    assert seen == [(10, 900), (20, 1900), (30, 2900)]
