"""The design explored completely on small instances, and each rule turned round: the search finds what it guards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.model import dropping, late, membership, minors, progress, sealing
from tests.model.dropping import Dropping
from tests.model.late import Late
from tests.model.membership import Membership
from tests.model.minors import Minors, Size
from tests.model.progress import Progress
from tests.model.run import SMALL, Instance, going_on, healed, main, not_held_back, problem, settling, without_node_0
from tests.model.sealing import Sealing
from tests.model.search import TooManyStatesError, explore, story_of, stuck, walk

EXPOSED = "who exposes a tick has every committed update below it"
LATER_LEADERS = "a committed update is never lost: each later leader has it"
ONE_CONTENT = "one SN has one content: who holds an entry that is committed holds what was committed"
LOCAL = "the stable VTS exceeds no node's local VTS"
FALLS = "the stable VTS never falls"
READ = "a read finds what is exposed on every node that is IN"
ROWS = "a sealed stream batch has each of its rows once"


@pytest.mark.parametrize("instance", SMALL, ids=lambda instance: instance.name)
def test_no_state_breaks_an_invariant_or_is_stuck(instance: Instance) -> None:
    assert problem(instance, explore(instance.model)) is None


@pytest.mark.parametrize(
    ("mutant", "size", "violated", "steps"),
    [
        ({"obeys_required": False}, Size(1, 1), EXPOSED, 7),
        ({"requires_uncommitted": False}, Size(1, 1), EXPOSED, 7),
        ({"proposes_on_time": False}, Size(1, 1), EXPOSED, 7),
        ({"own_tick_counts_as_reported": False}, Size(1, 1), EXPOSED, 7),
        ({"remembers_reported": False}, Size(1, 1), EXPOSED, 8),
        ({"persists_before_sending": False}, Size(1, 1), EXPOSED, 9),
        ({"stable": "maximum"}, Size(1, 1), EXPOSED, 5),
        ({"stable": "majority"}, Size(1, 1), EXPOSED, 6),
        ({"stable": "local"}, Size(1, 1), EXPOSED, 5),
        ({"elects_by_majority": False}, Size(1, 1), LATER_LEADERS, 4),
        ({"votes_for_newer_logs": False}, Size(1, 1), LATER_LEADERS, 4),
        ({"commits_old_terms": True}, Size(1, 1, 4), LATER_LEADERS, 6),
    ],
    ids=str,
)
def test_each_rule_of_minors_is_needed(mutant: dict[str, Any], size: Size, violated: str, steps: int) -> None:
    story = explore(Minors(size, minors.Rules(**mutant))).story
    assert story is not None
    print(story)
    assert (story.violation, len(story.steps)) == (violated, steps)


@pytest.mark.parametrize(
    ("mutant", "violated", "steps"),
    [
        ({"logs_before_reporting": False}, LOCAL, 7),
        ({"takes_newer_reports_only": False}, FALLS, 10),
        ({"stable": "maximum"}, LOCAL, 3),
        ({"stable": "majority"}, LOCAL, 6),
        ({"stable": "local"}, LOCAL, 2),
    ],
    ids=str,
)
def test_each_rule_of_progress_is_needed(mutant: dict[str, Any], violated: str, steps: int) -> None:
    story = explore(Progress(2, 1, progress.Rules(**mutant), splits_log=True)).story
    assert story is not None
    print(story)
    assert (story.violation, len(story.steps)) == (violated, steps)


@pytest.mark.parametrize(
    ("rule", "violated", "steps"),
    [
        ("waits_for_all_partitions", ROWS, 4),
        ("waits_for_rows", ROWS, 3),
        ("takes_rows_once", ROWS, 7),
        ("waits_for_owners", "nothing is sealed before its new terms are confirmed", 5),
        ("logs_exceptions_first", "an exception is in the majority log before it is used", 7),
        ("acknowledges_after_logging", "what is acknowledged is on disk", 2),
        ("seals_in_order", "stream batches are sealed in order", 9),
    ],
)
def test_each_rule_of_sealing_is_needed(rule: str, violated: str, steps: int) -> None:
    story = explore(Sealing(rules=replace(sealing.Rules(), **{rule: False}))).story
    assert story is not None
    print(story)
    assert (story.violation, len(story.steps)) == (violated, steps)


@pytest.mark.parametrize(
    ("rule", "violated", "steps"),
    [
        ("waits_for_rows", ROWS, 3),
        ("acknowledges_what_is_whole", "what is acknowledged is on disk", 10),
        ("goes_on_at_the_first_missing", ROWS, 17),
    ],
)
def test_each_rule_of_sealing_rows_out_of_order_is_needed(rule: str, violated: str, steps: int) -> None:
    story = explore(Sealing((0, 1, 3), rules=replace(sealing.Rules(), **{rule: False}), order=(2, 1, 2))).story
    assert story is not None
    print(story)
    assert (story.violation, len(story.steps)) == (violated, steps)


@pytest.mark.parametrize(
    ("rule", "violated", "steps"),
    [
        ("waits_for_holding", READ, 11),
        ("catches_up", READ, 9),
        ("requires_membership", READ, 11),
        ("leads_only_when_in", EXPOSED, 7),
        ("proposes_at_local_tick", EXPOSED, 14),
    ],
)
def test_each_rule_of_membership_is_needed(rule: str, violated: str, steps: int) -> None:
    rules = replace(membership.Rules(), **{rule: False})
    updates = int(violated == EXPOSED)
    story = explore(Membership(observer=membership.BACK, updates=updates, rules=rules)).story
    assert story is not None
    print(story)
    assert (story.violation, len(story.steps)) == (violated, steps)


@pytest.mark.parametrize(
    ("rule", "violated", "steps"),
    [
        ("stops_when_held", "what was exposed of a dropped stream stays", 21),
        ("waits_for_inserting", "what was exposed of a dropped stream stays", 20),
        ("cuts_at_the_least", "a read finds a dropped stream up to its end on every node", 12),
        ("waits_for_all", "a read finds a dropped stream up to its end on every node", 7),
    ],
)
def test_each_rule_of_dropping_is_needed(rule: str, violated: str, steps: int) -> None:
    story = explore(Dropping(1, replace(dropping.Rules(), **{rule: False}))).story
    assert story is not None
    print(story)
    assert (story.violation, len(story.steps)) == (violated, steps)


@pytest.mark.parametrize(
    ("rules", "size", "violated", "steps"),
    [
        (("brings_stable", "shows_stable"), (2, 1), "what is shown of a late stream is on every node", 4),
        pytest.param(
            *(("brings_what_has_ended",), (3, 1), "what is shown of a stream never falls", 15), marks=pytest.mark.slow
        ),
    ],
)
def test_rules_of_late_are_needed(rules: tuple[str, ...], size: tuple[int, int], violated: str, steps: int) -> None:
    story = explore(Late(*size, _without(*rules))).story
    assert story is not None
    print(story)
    assert (story.violation, len(story.steps)) == (violated, steps)


@pytest.mark.parametrize("rule", ["begins_late", "brings_stable"])
def test_without_a_rule_a_late_stream_holds_ticks_back(rule: str) -> None:
    told = problem(*_explored(not_held_back(Late(2, 1, _without(rule)), 0)))
    assert told is not None
    assert "what is wanted cannot be reached" in told


def test_a_late_stream_that_counts_too_early_is_never_whole() -> None:
    """What is between its record and the tick of the record is shown by neither."""
    told = problem(*_explored(settling("late", Late(2, 2, _without("counts_when_whole")), 0)))
    assert told is not None
    assert "what is wanted cannot be reached" in told


def test_what_leaders_bring_is_everywhere_whoever_looks() -> None:
    """That a node shows only what its own stable VTS has is a second lock on the same door."""
    assert explore(Late(2, 2, _without("shows_stable"))).story is None


def _without(*rules: str) -> late.Rules:
    return replace(late.Rules(), **dict.fromkeys(rules, False))


def _explored(instance: Instance) -> tuple[Instance, Any]:
    return instance, explore(instance.model)


@pytest.mark.parametrize(
    "model",
    [
        Sealing((0, 1, 2)),
        Sealing((0, 1, 3), order=(2, 1, 2)),
        Progress(2, 1),
        Minors(Size(1, 1)),
        Membership(observer=membership.BACK, updates=0),
        Dropping(1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_symmetry_leaves_no_state_out(model: Any) -> None:
    class WithoutSymmetry:
        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        def canonical(self, state: Any) -> Any:
            return state

    every: Any = WithoutSymmetry()
    assert {model.canonical(state) for state in explore(every).numbers} == set(explore(model).numbers)


class WithLostReports(Minors):
    """The model leaves out reports that the observer never takes, also after it has exposed a tick."""

    def steps(self, state: minors.State) -> Iterator[tuple[str, minors.State]]:
        yield from super().steps(state)
        for place, node in enumerate(state.nodes):
            if node.promise < self.size.batches:
                nodes = list(state.nodes)
                nodes[place] = node._replace(promise=node.promise + 1)
                yield f"node {place} reports tick {node.promise + 1} to others", state._replace(nodes=tuple(nodes))


def test_reports_that_the_observer_never_takes_break_nothing_and_hide_nothing() -> None:
    assert explore(WithLostReports(Size(1, 1))).story is None
    ignoring = minors.Rules(obeys_required=False)
    story = explore(WithLostReports(Size(1, 1), ignoring)).story
    assert story is not None
    assert (story.violation, len(story.steps)) == (EXPOSED, 7)


def test_a_counterexample_reads_as_a_story_in_one_naming() -> None:
    story = explore(Minors(Size(1, 1), minors.Rules(obeys_required=False))).story
    assert str(story).splitlines() == [
        "violated: who exposes a tick has every committed update below it",
        "  1. node 0 reports VTS (1,), required (0, 0)",
        "  2. node 1 reports VTS (1,), required (0, 0)",
        "  3. node 2 leads term 1, votes of node 0",
        "  4. node 2 appends an update for tick 0 at 1",
        "  5. node 2 reports VTS (1,), required (1, 1)",
        "  6. node 0 exposes tick 1 with 0 entries of the log",
        "  7. node 1 takes the log of term 1 up to 1 from node 2",
    ]


def test_reports_may_require_all_that_their_node_holds() -> None:
    model = Minors(Size(1, 1), minors.Rules(requires_all=True))
    found = explore(model)
    assert found.story is None
    assert stuck(model, found, model.settled, healed) == []


def test_refusing_late_entries_is_safe_but_leaves_the_log_stuck() -> None:
    """The rule weighed first. Nobody can drop the update either: the failed node may have committed it."""
    refusing = minors.Rules(refuses_late=True, proposes_on_time=False, requires_overwritten=False)
    assert explore(Minors(Size(1, 1), refusing)).story is None
    instance = going_on(Size(1, 1, 2, 1), 0)
    model = Minors(Size(1, 1, 2, 1), refusing, symmetry=False, exposes=False)
    found = explore(model)
    assert instance.goal is not None
    story = story_of(model, found, stuck(model, found, instance.goal, without_node_0)[0], "stuck without node 0")
    assert story.steps == (
        "node 1 reports VTS (1,), required (0, 0)",
        "node 2 leads term 1, votes of node 0",
        "node 2 appends an update for tick 0 at 1",
    )


def test_streams_go_on_without_a_majority_unless_an_update_is_in_flight() -> None:
    model = Minors(Size(1, 1), exposes=False)
    found = explore(model)
    held_back = stuck(model, found, lambda state: model.exposable(state)[0] == 1, lambda label: " reports " in label)
    states = list(found.numbers)
    assert held_back
    for number in held_back:
        nodes, _, done, _ = states[number]
        in_flight = any(node.mark > minors.NO_MARK or node.log[len(done) :] for node in nodes)
        assert in_flight or nodes[0].log[: len(done)] != done


OVERWRITTEN = [
    "node 1 leads term 1, votes of node 3, node 4",
    "node 1 appends an update for tick 0 at 1",
    "node 2 reports VTS (1,), required (0, 0)",
    "node 2 takes the log of term 1 up to 1 from node 1",
    "node 3 leads term 2, votes of node 0, node 4",
    "node 1 takes the log of term 2 up to 1 from node 3",
    "node 1 reports VTS (1,), required (0, 0)",
    "node 0 reports VTS (1,), required (0, 0)",
    "node 3 reports VTS (1,), required (0, 0)",
    "node 4 reports VTS (1,), required (0, 0)",
    "node 0 exposes tick 1 with 0 entries of the log",
    "node 2 leads term 3, votes of node 0, node 4",
    "node 0 takes the log of term 3 up to 2 from node 2",
    "node 4 takes the log of term 3 up to 2 from node 2",
]
"""Five nodes: an overwritten entry is committed later. Node 1, who proposed it, has lost it when it reports tick 1."""


def test_what_was_overwritten_has_to_be_required_still() -> None:
    size = Size(streams=1, batches=1, terms=3, nodes=5)
    forgetful = Minors(size, minors.Rules(requires_overwritten=False), symmetry=False)
    violations = [forgetful.violation(state) for state in walk(forgetful, OVERWRITTEN)]
    assert violations == [None] * 13 + [EXPOSED]
    model = Minors(size, symmetry=False)
    old, new = (f"node 1 reports VTS (1,), required {mark}" for mark in [(0, 0), (1, 1)])
    remembering = [new if label == old else label for label in OVERWRITTEN]
    with pytest.raises(LookupError, match="no step 'node 0 exposes tick 1"):
        list(walk(model, remembering))
    rest = [label for label in remembering if "exposes" not in label]
    assert [model.violation(state) for state in walk(model, rest)] == [None] * 13


def test_a_leader_must_not_move_its_update_within_a_term() -> None:
    """An act of a leader that is refused. A node that has the old version acknowledges the same term and length."""
    moving = Minors(Size(1, 2, 1, nodes=5), minors.Rules(moves_in_term=True), symmetry=False)
    story = [
        "node 0 leads term 1, votes of node 3, node 4",
        "node 0 appends an update for tick 0 at 1",
        "node 1 takes the log of term 1 up to 1 from node 0",
        "node 0 moves its update at 1 to tick 1",
        "node 2 takes the log of term 1 up to 1 from node 0",
    ]
    assert [moving.violation(state) for state in walk(moving, story)] == [None] * 4 + [ONE_CONTENT]


def test_search_stops_at_the_size_that_it_was_told() -> None:
    with pytest.raises(TooManyStatesError, match="expected at most 100"):
        explore(Sealing(), states_max=100)


def test_run_reports_each_instance_and_its_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = Instance("sealing", Sealing((0, 1)), 22)
    broken = Instance("broken", Sealing((0, 1), rules=sealing.Rules(waits_for_owners=False)), 22)
    monkeypatch.setattr("tests.model.run.SMALL", (sound,))
    assert main(["--small"]) == 0
    monkeypatch.setattr("tests.model.run.SMALL", (sound, broken, replace(sound, states=23)))
    assert main(["--small"]) == 1
    written = capsys.readouterr().out
    assert "sealing: 22 states" in written
    assert "violated: nothing is sealed before its new terms are confirmed\n  1. " in written
    assert "22 states, expected 23: the model has changed" in written
