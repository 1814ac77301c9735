"""Random lives in a data folder, with restarts and crashes, told to two engines: in one, queries of a shape fire as
one, in the other each is alone. Each query has the same windows and gaps in both, in each life."""

from __future__ import annotations

import io
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import wukongs
from tests.differential.test_joined_queries import NODES, S, T, nodes_of, plain, read, shapes_of, text_of
from tests.fuzz import SEED, first_and_slow, scaled
from tests.inside import core_of
from wukongs.live import joined_group, joined_queries

COUNTS = ("windows", "rows", "errors", "last_rows", "results_waiting", "results_dropped")
ENDS = ["restart", "crash", "crash"]
Events = list[tuple[Any, ...]]


def story(seed: int) -> Events:
    """What is done, in order."""
    rng = random.Random(seed)
    done: Events = [("load", 0)]
    names: list[str] = []
    times = {S: 0, T: 0}
    shapes = shapes_of(rng)
    for number in range(rng.randint(25, 50)):
        what = rng.choice(["register"] * 5 + ["push"] * 6 + ["advance"] * 3 + ["read"] * 4 + ["checkpoint"] + ENDS)
        if rng.random() < 0.25:
            what = rng.choice(["close", "pause", "resume", "replace", "group", "group", "look", "load"])
        if what == "register":
            names.append(f"q{number}")
            every = rng.choice(["", "", "", " COMPUTED EVERY 200ms"])
            report = rng.choice(["", "", " REPORT NON EMPTY RESULT"])
            done.append((what, names[-1], every + report, rng.choice(shapes), nodes_of(rng), rng.random() < 0.15))
        elif what in ("push", "advance"):
            stream = rng.choice([S, S, T])
            times[stream] += rng.choice([0, 40, 100, 150, 300])
            times[stream] += 2000 * (what == "advance" and rng.random() < 0.2)  # a jump
            pairs = [(rng.choice(NODES), rng.choice(NODES)) for _ in range(rng.randint(1, 6))]
            done.append((what, stream, times[stream], pairs))
            times[stream] += what == "advance"
        elif what in ("load", "checkpoint", *ENDS):
            done.append((what, number))
        elif names:
            done.append((what, rng.choice(names), rng.choice(shapes), nodes_of(rng), rng.randint(1, 6)))
    end_ms = max(6000, *(t + 1000 for t in times.values()))
    return [*done, (rng.choice(ENDS), 0), ("advance", S, end_ms, []), ("advance", T, end_ms, []), (rng.choice(ENDS), 1)]


class Life:
    """What each query has reported: to whoever reads it, by name; `|` stands where the engine was opened anew."""

    def __init__(self, folder: Path, settings: wukongs.Settings) -> None:
        self.folder, self.settings, self.lives = folder, settings, 0
        self.found: dict[str, dict[str, Any]] = {}
        self.heard: dict[str, dict[int, Any]] = {}
        """The windows that on_result was called with. It hangs on how quick the call is whether one comes again."""
        self.texts: dict[str, str] = {}
        """Of the queries that are not closed."""
        self.called: set[str] = set()
        self.queries: dict[str, Any] = {}
        self.open(folder / "0")

    def open(self, folder: Path) -> None:
        self.engine = wukongs.Engine(folder, settings=self.settings)
        self.streams = {stream: self.engine.stream(stream, timing=True, batch_ms=100) for stream in (S, T)}
        assert {query.name for query in self.engine.queries()} == set(self.texts)
        for name in self.texts:
            for found in self.found[name].values():
                found.append("|")
            self.register(name)

    def register(self, name: str) -> None:
        heard = self.heard.setdefault(name, {})
        on_result = (lambda window: heard.update({window.end_ms: plain(window)})) if name in self.called else None
        self.queries[name] = self.engine.register(self.texts[name], on_result)

    def do(self, what: str, *rest: Any) -> None:
        self.engine.settle(60)
        if what in ("push", "advance"):
            stream, time_ms, pairs = rest
            if what == "advance":
                self.streams[stream].advance(time_ms)
            else:
                predicate = "<http://e/p>" if stream == S else "<http://e/q>"
                self.streams[stream].push([(s, predicate, o, time_ms) for s, o in pairs])
        elif what == "load":
            lines = (f"{NODES[at]} <http://e/k> {NODES[(at + 1 + rest[0]) % 6]} .\n" for at in range(6))
            self.engine.load(io.BytesIO("".join(lines).encode()), format="nt")
        elif what == "checkpoint":
            self.engine.checkpoint()
        elif what == "restart":
            self.engine.close()
            self.open(self.folder / str(self.lives))
        elif what == "crash":
            self.lives += 1
            copy = self.folder / str(self.lives)
            core = core_of(self.engine)
            with core.lock:  # else it hangs on where segments end which windows come again, and these differ
                core.journal._log_acknowledgements()
            core.journal.wait()
            with core.journal._turn:
                shutil.copytree(self.folder / str(self.lives - 1), copy)
            self.engine.close()
            self.open(copy)
        elif what == "register":
            name, options, shape, nodes, is_called = rest
            self.texts[name] = text_of(name, options, shape, nodes)
            self.called |= {name} if is_called else set()
            self.found[name] = {"read": [], "group": []}
            self.register(name)
        else:
            self.do_with(what, *rest)

    def do_with(self, what: str, name: str, shape: int, nodes: list[str], count: int) -> None:
        query, found = self.queries[name], self.found[name]
        if what == "read":
            self.read(name, count)
        elif query.is_closed:
            return
        elif what == "replace":
            self.texts[name] = text_of(name, "", shape, nodes)
            query.replace(self.texts[name])
        elif what == "group":
            read(query, found["group"], "together")
        elif what == "look":
            assert "SELECT" in query.explain(analyze=True)
            assert query.why().startswith(name)
        else:
            getattr(query, what)()
            if what == "close":
                del self.texts[name]

    def read(self, name: str, count: int) -> None:
        """Read some windows. All but the last are acknowledged."""
        try:
            for window in self.queries[name].results(timeout_s=0):
                self.found[name]["read"].append(plain(window))
                count -= 1
                if not count:
                    break
        except wukongs.GapError as gap:
            self.found[name]["read"].append(("gap", gap.from_ms, gap.to_ms, gap.count))

    def end(self) -> dict[str, dict[str, Any]]:
        self.engine.settle(60)
        self.engine.checkpoint()
        for name in self.texts:
            stats = self.queries[name].stats()
            self.found[name]["counts"] = [stats[key] for key in COUNTS if name not in self.called]
            read(self.queries[name], self.found[name]["read"])
        self.engine.settle(60)
        self.found["engine"] = {"oldest": self.engine.stats()["durability"]["oldest_unacknowledged_ms"]}
        self.engine.close()
        for name, heard in self.heard.items():
            self.found[name]["heard"] = sorted(heard.items())
        return self.found


def live(events: Events, folder: Path, settings: wukongs.Settings) -> dict[str, dict[str, Any]]:
    life = Life(folder, settings)
    try:
        for event in events:
            life.do(*event)
        return life.end()
    finally:
        life.engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("group_max", first_and_slow([3, 1 << 16]))
def test_lives_in_a_folder(group_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_group, "GROUP_MAX", group_max)
    together = 0
    for number in range(scaled(25)):
        seed = ((SEED or 0) << 20) + (group_max & 15) * 1000 + number
        events, segment_bytes = story(seed), random.Random(seed).choice([1 << 11, 1 << 13, 1 << 20])
        settings = wukongs.Settings(log_segment_bytes=segment_bytes, checkpoint_bytes=1 << 30, sync_interval_ms=1000)
        monkeypatch.setattr(joined_queries, "ALONE_MAX", 1 << 30)
        alone = live(events, tmp_path / f"{number}-alone", settings)
        monkeypatch.setattr(joined_queries, "ALONE_MAX", 0)
        joined = live(events, tmp_path / f"{number}-joined", settings)
        for name, expected in alone.items():
            assert joined[name] == expected, (seed, name)
        together += sum(len(one["read"]) for one in joined.values() if "read" in one)
        shutil.rmtree(tmp_path / f"{number}-alone")
        shutil.rmtree(tmp_path / f"{number}-joined")
    assert together
