"""The budget that executions, loads, results and sessions share: what is reserved, who waits, and who is refused."""

from __future__ import annotations

import gc
import io
import random
import threading
import time
from pathlib import Path

import pytest

import wukongs
from wukongs.query import memory
from wukongs.query.limits import Limits
from wukongs.query.memory import FREE_BYTES, LEAST_BYTES, Kind, MemoryBudget, Reservation

MEGABYTE = 1 << 20
PAIRS = "SELECT * { ?a <http://ex/p> ?b . ?c <http://ex/p> ?d }"


def of(budget: MemoryBudget, kind: Kind = Kind.QUERY, **options: float) -> Limits:
    limits = Limits(budget=budget, kind=kind)
    limits.wait_s = options.get("wait_s", 0.0)
    return limits


def test_little_is_not_reserved_and_the_rest_is_given_back() -> None:
    budget = MemoryBudget(64 * MEGABYTE)
    limits = of(budget)
    with limits:
        limits.hold(FREE_BYTES)
        assert budget.reserved_bytes == 0
        limits.hold(20 * MEGABYTE)
        assert budget.reserved_bytes == 20 * MEGABYTE
        limits.give_back(15 * MEGABYTE)
        assert budget.reserved_bytes == 5 * MEGABYTE
        limits.hold(30 * MEGABYTE)
        with limits:  # an inner block of the same execution gives nothing back
            pass
        assert budget.stats()["held_bytes"] == {"queries": 35 * MEGABYTE}
    assert (budget.reserved_bytes, budget.peak_bytes) == (0, 35 * MEGABYTE)


def test_who_finds_no_room_is_refused_by_name_and_holds_what_it_held() -> None:
    budget = MemoryBudget(64 * MEGABYTE)
    with of(budget) as one, of(budget) as other:
        one.hold(40 * MEGABYTE)
        other.hold(10 * MEGABYTE)
        with pytest.raises(wukongs.BudgetExceeded) as caught:
            other.hold(10 * MEGABYTE, "a sort")
        assert other.lacks_bytes
        told = str(caught.value)
        assert told.startswith("a sort would take 10485760 bytes beside 10485760 that this one of the queries holds")
        assert "memory_bytes_max = 67108864" in told
        assert "(held: queries 50331648)" in told  # without the first megabyte of each
        other.hold(5 * MEGABYTE)
        assert budget.stats()["refused"] == 1
    assert budget.reserved_bytes == 0


def test_an_eighth_is_left_to_firings_and_updates() -> None:
    budget = MemoryBudget(64 * MEGABYTE)
    with of(budget) as query, of(budget, Kind.FIRING) as firing, of(budget, Kind.UPDATE) as update:
        query.hold(57 * MEGABYTE)
        with pytest.raises(wukongs.BudgetExceeded):
            query.hold(MEGABYTE)
        firing.hold(5 * MEGABYTE)
        update.hold(5 * MEGABYTE)
        with pytest.raises(wukongs.BudgetExceeded, match="updates holds"):
            update.hold(MEGABYTE)


def test_one_that_holds_nothing_waits_for_others() -> None:
    budget, done = MemoryBudget(64 * MEGABYTE), threading.Event()
    with of(budget) as first:
        first.hold(50 * MEGABYTE)

        def wait() -> None:
            with of(budget, wait_s=60.0) as limits:
                limits.hold(30 * MEGABYTE)
                done.set()

        thread = threading.Thread(target=wait)
        thread.start()
        while not budget.waiting:
            time.sleep(0.001)
        assert not done.is_set()
        first.give_back(40 * MEGABYTE)
        thread.join(60)
    assert done.is_set()


@pytest.mark.parametrize(("kind", "wait_s", "least_s"), [(Kind.QUERY, 0.2, 0.2), (Kind.FIRING, 60.0, 0.0)])
def test_a_wait_ends_by_name(kind: Kind, wait_s: float, least_s: float) -> None:
    """A query waits for its time, a firing not at all."""
    budget = MemoryBudget(64 * MEGABYTE)
    with of(budget) as first:
        first.hold(50 * MEGABYTE)
        began_s = time.monotonic()
        with pytest.raises(wukongs.BudgetExceeded), of(budget, kind, wait_s=wait_s) as second:
            second.hold(30 * MEGABYTE)
        assert least_s <= time.monotonic() - began_s < 30


def test_who_waits_can_be_killed() -> None:
    budget = MemoryBudget(64 * MEGABYTE)
    with of(budget) as first, of(budget, wait_s=60.0) as second:
        first.hold(50 * MEGABYTE)
        threading.Timer(0.05, second.kill).start()
        with pytest.raises(wukongs.QueryKilled):
            second.hold(30 * MEGABYTE)


def test_of_those_that_hold_only_the_oldest_waits() -> None:
    budget, outcomes = MemoryBudget(64 * MEGABYTE), list[str]()
    with of(budget, wait_s=60.0) as oldest, of(budget, wait_s=60.0) as younger:
        oldest.hold(26 * MEGABYTE)
        younger.hold(26 * MEGABYTE)

        def wait() -> None:
            oldest.hold(20 * MEGABYTE)
            outcomes.append("the oldest has it")

        thread = threading.Thread(target=wait)
        thread.start()
        while not budget.waiting:
            time.sleep(0.001)
        with pytest.raises(wukongs.BudgetExceeded):  # at once: both would wait for each other
            younger.hold(20 * MEGABYTE)
        assert not outcomes
        younger.give_back(26 * MEGABYTE)
        thread.join(60)
    assert outcomes == ["the oldest has it"]


def test_more_than_all_there_is_is_not_waited_for() -> None:
    with of(MemoryBudget(64 * MEGABYTE), wait_s=60.0) as limits:
        limits.hold(10 * MEGABYTE)
        began_s = time.monotonic()
        with pytest.raises(wukongs.BudgetExceeded):
            limits.hold(50 * MEGABYTE)
        assert time.monotonic() - began_s < 30


def test_many_threads_never_wait_for_each_other_and_give_all_back() -> None:
    """Each holds more and more in random steps; whatever the others do, each ends, and at no time too much is held."""
    budget, seed = MemoryBudget(16 * MEGABYTE), random.randrange(1 << 30)
    excess, ended = list[int](), list[str]()

    def work(number: int) -> None:
        rng = random.Random(seed + number)
        for _ in range(40):
            try:
                with of(budget, wait_s=0.05) as limits:
                    for _ in range(rng.randrange(1, 6)):
                        limits.hold(rng.randrange(8 * MEGABYTE))
                        if budget.reserved_bytes > budget.bytes_max:
                            excess.append(budget.reserved_bytes)
                        if rng.random() < 0.3:
                            limits.give_back(rng.randrange(limits.held + 1))
                ended.append("done")
            except wukongs.BudgetExceeded:
                ended.append("refused")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), f"seed {seed}"
    assert (len(ended), excess, budget.reserved_bytes, budget.waiting) == (320, [], 0, 0), f"seed {seed}"
    assert set(ended) == {"done", "refused"}, f"seed {seed}"


def test_what_is_collected_is_given_back() -> None:
    budget = MemoryBudget(64 * MEGABYTE)
    result = Reservation(budget, Kind.RESULT)
    result.note(10 * MEGABYTE)
    assert budget.stats()["held_bytes"] == {"results": 10 * MEGABYTE}
    del result
    gc.collect()
    assert budget.stats()["reserved_bytes"] == 0


def test_a_result_holds_its_columns_until_it_is_collected() -> None:
    with wukongs.Engine(settings={"memory_bytes_max": 101 * MEGABYTE}) as engine:  # a budget that no other test has
        lines = [f"<http://ex/n{i}> <http://ex/p> <http://ex/n{(i + 1) % 300}> ." for i in range(300)]
        engine.load(io.BytesIO("\n".join(lines).encode()), format="nt")

        def held() -> dict[str, int]:
            found: dict[str, int] = engine.stats()["process"]["memory"]["held_bytes"]
            return found

        result = engine.query(PAIRS)
        assert held() == {"results": 4 * 8 * 90_000}
        small = engine.query("SELECT * { ?a <http://ex/p> ?b }")
        assert held() == {"results": 4 * 8 * 90_000}
        assert (len(result), len(small)) == (90_000, 300)
        del result
        assert held() == {}


def test_loads_reserve_what_they_take_in_flight(tmp_path: Path) -> None:
    with wukongs.Engine(settings={"memory_bytes_max": 102 * MEGABYTE, "memory_wait_ms": 10}) as engine:
        file = tmp_path / "large.nt"
        file.write_text("".join(f'<http://ex/n{i}> <http://ex/p> "{"x" * 50}" .\n' for i in range(4000)))
        budget = memory.budget_of(102 * MEGABYTE)
        taken = Reservation(budget, Kind.QUERY)
        assert taken.grow(88 * MEGABYTE)
        with pytest.raises(wukongs.BudgetExceeded, match=r"large\.nt: the load would take .* \(held: queries 92274688"):
            engine.load(file)
        small = io.BytesIO(b"<http://ex/a> <http://ex/p> <http://ex/b> .")
        assert engine.load(small, format="nt") > 0
        taken.note(0)
        engine.load(file)
        assert engine.stats()["process"]["memory"]["held_bytes"] == {}
        assert budget.peak_bytes >= 88 * MEGABYTE


# --- what there is ----------------------------------------------------------------------------------------------------


def of_files(folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> int:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setattr(memory, "_PROC", folder / "proc")
    monkeypatch.setattr(memory, "_CGROUPS", folder / "cgroup")
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (memory.resource.RLIM_INFINITY,) * 2)
    return memory.free_bytes()


MACHINE = {"proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable:  8000000 kB\nHugePages_Total: 0\n"}
V2 = {"proc/self/cgroup": "0::/a/b\n", "cgroup/a/b/memory.max": "max\n", "cgroup/a/b/memory.current": "5\n"}
V1 = {"proc/self/cgroup": "5:cpu,memory:/c\n", "cgroup/memory/c/memory.limit_in_bytes": "9223372036854771712\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, LEAST_BYTES),
        (MACHINE, 8_192_000_000),
        ({**MACHINE, **V2}, 8_192_000_000),
        (
            {
                **MACHINE,
                **V2,
                "cgroup/a/memory.max": "1000000\n",
                "cgroup/a/memory.current": "700000\n",
                "cgroup/a/memory.stat": "anon 5\ninactive_file 100000\n",
            },
            400_000,
        ),
        ({**MACHINE, **V1}, 8_192_000_000),
        (
            {
                **MACHINE,
                **V1,
                "cgroup/memory/memory.limit_in_bytes": "1000\n",
                "cgroup/memory/memory.usage_in_bytes": "300\n",
                "cgroup/memory/memory.stat": "total_inactive_file 0\n",
            },
            700,
        ),
    ],
)
def test_free_bytes_are_the_least_of_what_all_limits_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int
) -> None:
    assert of_files(tmp_path, monkeypatch, files) == expected


def test_resource_limits_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_files(tmp_path, monkeypatch, {**MACHINE, "proc/self/status": "VmSize:\t  3000 kB\nVmData:\t 1000 kB\n"})
    limits = {memory.resource.RLIMIT_AS: 10 << 20, memory.resource.RLIMIT_DATA: 4 << 20}
    monkeypatch.setattr(memory.resource, "getrlimit", lambda which: (limits[which], 0))
    assert memory.free_bytes() == (4 << 20) - 1024 * 1000


def test_a_measured_budget_is_half_of_what_is_left_and_never_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 10 << 30)
    budget = MemoryBudget(0)
    assert budget.bytes_max == 5 << 30
    monkeypatch.setattr(memory, "free_bytes", lambda: 1 << 20)
    budget.measure()
    assert budget.bytes_max == LEAST_BYTES
    given = MemoryBudget(64 << 20)
    given.measure()
    assert given.bytes_max == 64 << 20
