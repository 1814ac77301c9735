"""The journal of an engine in memory: every change holds at once, and nothing is read to be logged."""

from __future__ import annotations

from collections.abc import Iterator

from wukongs.live.journal import NoJournal
from wukongs.live.pieces import Finish
from wukongs.store.encoded import Encoded


def test_what_is_noted_holds_at_once() -> None:
    journal, held = NoJournal(), list[str]()
    assert journal.note(Finish("s", "p", 1), lambda: held.append("s")) == 0
    assert held == ["s"]


def test_chunks_are_not_even_encoded() -> None:
    def chunks() -> Iterator[Encoded]:
        raise AssertionError("read")
        yield

    NoJournal().note_chunks(1, chunks())
