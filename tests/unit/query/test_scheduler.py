"""The scheduler: which executions run and which wait, with a clock that the test sets, and in real threads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import wukongs
from wukongs.errors import QueryKilled, QueryTimeout
from wukongs.query import limits as limits_module
from wukongs.query.limits import Canceller, Limits, scheduled, watched
from wukongs.query.scheduler import (
    AGED_S,
    AGED_SLICE_S,
    CLIENTS_MAX,
    CLOCK_SHARE,
    LEVELS_S,
    PRECEDENCE,
    SILENT_S,
    SLICE_S,
    URGENT_S,
    Scheduler,
    Task,
)

NEW_S = LEVELS_S[0]


def nothing() -> None:
    pass


class Threads:
    """Executions in threads of their own, each at a point that the test knows. Time goes on only by `sleep`."""

    def __init__(self, processors: int) -> None:
        self.now = 100.0
        self.scheduler = Scheduler(processors, lambda: self.now, lambda: self.now)
        self.threads: dict[Task, threading.Thread] = {}
        self.runs = set[Task]()
        """Those whose thread goes on."""

    def _call(self, task: Task, call: object) -> None:
        def run() -> None:
            call(task, nothing)  # type: ignore[operator]
            self.runs.add(task)

        self.runs.discard(task)
        thread = self.threads[task] = threading.Thread(target=run, daemon=True)
        thread.start()
        self.settle(task)
        self.settle_picked()

    def settle(self, task: Task) -> None:
        """Wait until a call has returned, or waits."""
        thread, scheduler = self.threads[task], self.scheduler
        deadline = time.monotonic() + 20
        while thread.is_alive() and not (task in scheduler._waiting and task.picked is not None):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        with scheduler._lock:  # the step that has put it there is over
            pass
        if not thread.is_alive():
            thread.join()

    def settle_picked(self) -> None:
        """Wait until those that run have begun to: their processor time counts from there."""
        for task in list(self.scheduler._running):
            if task in self.threads:
                self.settle(task)

    def start(self, client: object = None, used_s: float = 0.0) -> Task:
        task = Task(client, used_s)
        self._call(task, self.scheduler.start)
        return task

    def check(self, task: Task) -> bool:
        """Let a running task check; return whether it runs after that."""
        if self.scheduler.has_to_pause(task):
            self._call(task, self.scheduler.pause)
        return self.is_running(task)

    def stop(self, task: Task) -> None:
        self.scheduler.stop(task)
        self.settle_picked()

    def is_running(self, task: Task) -> bool:
        return task in self.scheduler._running

    def end(self) -> None:
        for task in list(self.scheduler._waiting) + list(self.scheduler._running):
            if self.is_running(task):
                self.scheduler.stop(task)
        while self.scheduler.counts != (0, 0):
            for task in list(self.scheduler._running):
                self.scheduler.stop(task)
        for thread in self.threads.values():
            thread.join(20)
            assert not thread.is_alive()


@contextmanager
def threads(processors: int = 2) -> Iterator[Threads]:
    found = Threads(processors)
    try:
        yield found
    finally:
        found.end()


# --- the rules --------------------------------------------------------------------------------------------------------


def test_as_many_run_as_there_are_processors() -> None:
    with threads(2) as world:
        long = [world.start(used_s=1.0) for _ in range(4)]
        assert [world.is_running(one) for one in long] == [True, True, False, False]
        world.stop(long[0])
        assert [world.is_running(one) for one in long] == [False, True, True, False]


def test_a_new_task_runs_at_once_and_a_long_one_is_paused_for_it() -> None:
    with threads(2) as world:
        first, second = world.start(used_s=1.0), world.start(used_s=1.0)
        new = world.start()
        assert world.is_running(new)
        assert not world.check(first)
        assert world.check(second)
        world.stop(new)
        assert world.is_running(first)


def test_new_tasks_are_bounded_too_and_are_new_for_a_short_time() -> None:
    with threads(1) as world:
        first, second, third = world.start(), world.start(), world.start()
        assert [world.is_running(one) for one in (first, second, third)] == [True, True, False]
        assert world.check(first)
        world.now += 1.01 * NEW_S
        assert not world.check(first)
        assert world.is_running(third)


def test_tasks_of_one_level_run_one_after_the_other() -> None:
    with threads(1) as world:
        first = world.start(used_s=1.0)
        world.now += 0.01
        second = world.start(used_s=1.0)
        world.now += 0.01
        third = world.start(used_s=1.0)
        world.now += 0.5
        assert world.check(first)
        new = world.start()
        assert not world.check(first)
        world.stop(new)
        assert world.is_running(first), "it has been on its level longest"
        world.now += LEVELS_S[2] - 1.5
        assert not world.check(first), "others of the level that it rises to, or a lower one, run first"
        assert world.is_running(second)
        world.now += 0.1
        world.stop(second)
        assert world.is_running(third)
        world.now += 0.1
        world.stop(third)
        assert world.is_running(first)


def test_tasks_of_the_highest_level_alternate() -> None:
    with threads(1) as world:
        first, second = world.start(used_s=LEVELS_S[-1]), world.start(used_s=LEVELS_S[-1])
        world.now += SLICE_S / 2
        assert world.check(first)
        world.now += SLICE_S
        assert not world.check(first)
        assert world.is_running(second)


def test_a_task_that_has_run_for_long_waits_for_those_that_have_not() -> None:
    with threads(1) as world:
        long, short = world.start(used_s=5.0), world.start(used_s=0.1)
        world.now += 2 * SLICE_S
        assert not world.check(long)
        for _ in range(5):
            world.now += NEW_S
            assert world.check(short)
        world.stop(short)
        assert world.is_running(long)


def test_a_client_with_many_tasks_does_not_hold_up_another() -> None:
    with threads(1) as world:
        many = [world.start("many") for _ in range(20)]
        assert [world.is_running(one) for one in many] == [True] * 2 + [False] * 18
        other = world.start("other")
        world.stop(many[0])
        assert world.is_running(other)


def test_each_task_runs_again_though_new_ones_never_end() -> None:
    with threads(1) as world:
        long = world.start(used_s=5.0)
        new = world.start()
        assert not world.check(long)
        for _ in range(int(AGED_S / NEW_S) + 1):
            world.now += NEW_S / 2
            following = world.start()
            world.stop(new)
            world.now += NEW_S / 2
            new = following
        assert world.is_running(long)
        world.now += AGED_SLICE_S / 2
        assert world.check(long)
        world.now += AGED_SLICE_S
        assert not world.check(long)


def test_a_task_that_does_not_check_does_not_hold_up_others() -> None:
    """It may wait for a lock that the other holds."""
    with threads(1) as world:
        silent, other = world.start(used_s=1.0), world.start(used_s=1.0)
        world.now += SILENT_S + 0.01
        world.threads[other].join(20)  # it polls
        assert world.is_running(other)
        assert world.is_running(silent)


def test_tasks_that_are_not_new_give_way_to_urgent_work() -> None:
    with threads(2) as world:
        long, new = [world.start(used_s=1.0) for _ in range(2)], world.start()
        with world.scheduler.urgent():
            with world.scheduler.urgent():
                assert [world.check(one) for one in (*long, new)] == [False, False, True]
            assert not any(map(world.is_running, long)), "some is under way still"
            started = world.start(used_s=1.0)
            assert not world.is_running(started)
        world.stop(new)
        assert all(map(world.is_running, long))


def test_urgent_work_without_end_leaves_most_of_the_time_to_tasks() -> None:
    with threads(2) as world:
        long = [world.start(used_s=1.0) for _ in range(2)]
        with world.scheduler.urgent():
            assert [world.check(one) for one in long] == [False, False]
            world.now += 1.01 * URGENT_S
            while not any(map(world.is_running, long)):  # they poll
                time.sleep(0.001)
            running = [one for one in long if world.is_running(one)]
            assert len(running) == 1, "urgent work counts as one that runs"
            world.threads[running[0]].join(20)
            assert world.check(running[0])
        assert all(map(world.is_running, long))
        world.now += URGENT_S / 2
        with world.scheduler.urgent():
            assert [world.check(one) for one in long] == [False, False]
            world.now += 1.01 * PRECEDENCE * URGENT_S / 2
            while not any(map(world.is_running, long)):  # they poll
                time.sleep(0.001)
            assert sum(map(world.is_running, long)) == 1, "a fifth of the time since then is over"


def test_urgent_work_without_end_leaves_a_processor_that_is_alone_to_a_task() -> None:
    with threads(1) as world:
        long = world.start(used_s=1.0)
        with world.scheduler.urgent():
            assert not world.check(long)
            world.now += 1.01 * URGENT_S
            while not world.is_running(long):  # it polls
                time.sleep(0.001)
            world.settle(long)
            for _ in range(5):
                world.now += URGENT_S
                assert world.check(long), "it goes on"


def test_a_wait_ends_with_the_error_of_its_check() -> None:
    with threads(1) as world:
        running = world.start(used_s=1.0)

        def fail() -> None:
            raise QueryTimeout("over")

        waiting = Task(used_s=1.0)
        with pytest.raises(QueryTimeout):
            world.scheduler.start(waiting, fail)
        assert world.scheduler.counts == (1, 0)
        assert world.is_running(running)


@pytest.mark.parametrize("seed", range(8))
def test_random_tasks_keep_the_rules(seed: int) -> None:
    """Against the rules themselves, after each step."""
    rng, ended = random.Random(seed), 0
    with threads(rng.randint(1, 3)) as world:
        scheduler, left = world.scheduler, dict[Task, float]()
        for _ in range(400):
            world.now += rng.choice((0.001, 0.01, 0.06))
            running, waiting = list(scheduler._running), list(scheduler._waiting)
            kind = rng.random()
            if kind < 0.25 and len(left) < 12:
                left[world.start(rng.randint(0, 2))] = rng.choice((0.005, 0.1, 1.0))
            elif running:
                task = rng.choice(running)
                if task.used_s + world.now - task.began_s >= left[task]:
                    world.stop(task)
                    del left[task]
                    ended += 1
                else:
                    world.check(task)
            running, waiting = list(scheduler._running), list(scheduler._waiting)
            assert {*running, *waiting} == {*left}
            loud = [one for one in running if world.now - one.checked_s < SILENT_S]
            if waiting and len(loud) < scheduler.processors:
                for one in waiting:  # those that poll find that others are silent
                    world.threads[one].join(1.0)
                    if world.is_running(one):
                        break
                loud = [one for one in scheduler._running if world.now - one.checked_s < SILENT_S]
            assert not scheduler._waiting or len(loud) >= scheduler.processors
            assert len(loud) <= 2 * scheduler.processors + 1
        assert ended > 3


def test_a_task_that_others_keep_from_a_processor_stays_new() -> None:
    now, used = [100.0], [7.0]
    scheduler = Scheduler(1, lambda: now[0], lambda: used[0])
    long, short = Task(used_s=1.0), Task()
    scheduler.start(long, nothing)
    scheduler.start(short, nothing)
    now[0] += 0.9 * NEW_S / CLOCK_SHARE
    used[0] += 0.9 * NEW_S
    assert not scheduler.has_to_pause(short), "it has used less than a new one may"
    assert scheduler.has_to_pause(long)
    used[0] += 0.2 * NEW_S
    assert scheduler.has_to_pause(short)
    scheduler.stop(short)
    assert short.level() == 1
    scheduler.stop(long)
    assert scheduler.counts == (0, 0)


def test_a_task_that_waits_for_another_process_does_not_stay_new() -> None:
    now = [100.0]
    scheduler = Scheduler(1, lambda: now[0], lambda: 7.0)
    one, other = Task(), Task()
    scheduler.start(one, nothing)
    scheduler.start(other, nothing)
    now[0] += 0.9 * NEW_S / CLOCK_SHARE
    assert not scheduler.has_to_pause(one)
    now[0] += 0.2 * NEW_S / CLOCK_SHARE
    assert scheduler.has_to_pause(one)
    for task in (one, other):
        scheduler.stop(task)
        assert task.level() == 1


def test_a_client_that_has_used_little_lately_is_picked_before_others() -> None:
    with threads(1) as world:
        running = world.start("loud", used_s=0.1)
        others = [world.start(client, used_s=0.1) for client in ("loud", "louder", "louder")]
        world.now += 1.0
        quiet = world.start("quiet", used_s=0.1)
        world.stop(running)
        assert world.is_running(others[1]), "neither it nor `quiet` has used any, and it has waited longer"
        world.now += 1.0
        world.stop(others[1])
        assert world.is_running(quiet)
        world.stop(quiet)
        assert world.is_running(others[0]), "1 s, a second ago, is half of what the other one has used"


def test_what_clients_have_used_is_bounded() -> None:
    scheduler = Scheduler(1)
    for client in range(3 * CLIENTS_MAX):
        task = Task(client)
        scheduler.start(task, nothing)
        scheduler.stop(task)
        assert len(scheduler._uses) <= CLIENTS_MAX


# --- executions -------------------------------------------------------------------------------------------------------


def test_limits_run_as_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(1)
    monkeypatch.setattr(limits_module._PROCESSORS, "scheduler", scheduler)
    one = scheduled(Limits())
    with one:
        assert scheduler.counts == (1, 0)
        with one:
            one.check()
        assert scheduler.counts == (1, 0)
        with one.without_processor():
            assert scheduler.counts == (0, 0)
            one.check()
        assert scheduler.counts == (1, 0)
    assert scheduler.counts == (0, 0)


def test_a_waiting_execution_can_be_killed_and_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(1)
    monkeypatch.setattr(limits_module._PROCESSORS, "scheduler", scheduler)
    found = list[BaseException]()

    def run(limits: Limits, canceller: Canceller) -> None:
        try:
            with canceller, watched(limits):
                pass
        except (QueryKilled, QueryTimeout) as error:
            found.append(error)

    with scheduled(Limits(), used_s=1.0) as first:
        late = scheduled(Limits(deadline_s=time.monotonic() + 0.1, timeout_s=0.1), used_s=1.0)
        killed, canceller = scheduled(Limits(), used_s=1.0), Canceller()
        waiting = [
            threading.Thread(target=run, args=(late, Canceller())),
            threading.Thread(target=run, args=(killed, canceller)),
        ]
        for one in waiting:
            one.start()
        until_s = time.monotonic() + 20
        while scheduler.counts != (1, 2) and time.monotonic() < until_s and len(found) < 1:
            first.task.checked_s = time.monotonic()  # type: ignore[union-attr]
            time.sleep(0.005)
        canceller.cancel()
        while len(found) < 2 and time.monotonic() < until_s:
            first.task.checked_s = time.monotonic()  # type: ignore[union-attr]
            time.sleep(0.005)
        for one in waiting:
            one.join(20)
    assert {type(one) for one in found} == {QueryKilled, QueryTimeout}
    assert scheduler.counts == (0, 0)


def test_point_queries_beside_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long ones are paused, and all answers are right."""
    scheduler = Scheduler(1)
    monkeypatch.setattr(limits_module._PROCESSORS, "scheduler", scheduler)
    with wukongs.Engine() as engine:
        lines = "\n".join(f"<http://ex/{one}> <http://ex/in> <http://ex/g{one % 3}> ." for one in range(900))
        engine.update(f"INSERT DATA {{ {lines} }}")
        counts = list[object]()

        def ask_long() -> None:
            text = "SELECT (COUNT(*) AS ?n) { SELECT DISTINCT ?a ?c { ?a <http://ex/in> ?g . ?c <http://ex/in> ?g } }"
            counts.append(engine.query(text).texts())

        long = [threading.Thread(target=ask_long) for _ in range(4)]
        for one in long:
            one.start()
        asked = 0
        while any(one.is_alive() for one in long):
            assert engine.query("SELECT ?g { <http://ex/5> <http://ex/in> ?g }").texts() == [("<http://ex/g2>",)]
            asked += 1
        assert counts == [[('"270000"^^<http://www.w3.org/2001/XMLSchema#integer>',)]] * 4
        assert asked > 5
    assert scheduler.counts == (0, 0)
    assert scheduler.pauses > 3
