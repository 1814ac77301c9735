"""The operations of programs, one by one, over random tables; each is compared with a naive loop over Python rows."""

from __future__ import annotations

import itertools
import operator
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from wukongs.query.plans.plan_layout import DONE, IS_OTHER
from wukongs.query.programs import program_layout as layout
from wukongs.query.programs.arena import Arena
from wukongs.query.programs.memo import TextMemo
from wukongs.query.programs.memo_kernels import insert_values
from wukongs.query.programs.operations import Code
from wukongs.query.programs.program_kernels import run_programs
from wukongs.query.terms.query_terms import QueryTerms
from wukongs.store.dtypes import NO_MATCH, UNBOUND
from wukongs.store.encoded import TermTable
from wukongs.store.jit import wrapping
from wukongs.store.term_ids import OPS, inlined_id, term_ids
from wukongs.store.term_registry import TermRegistry
from wukongs.store.value_kernels import OP_LESS

pytestmark = pytest.mark.nojit
XSD = "http://www.w3.org/2001/XMLSchema#"
Rows = list[tuple[int, ...]]
ARENA_CELLS = 1 << 14


class Bench:
    """A program under construction over constant tables."""

    def __init__(self, cells: int = ARENA_CELLS) -> None:
        self.code, self.arena, self._held = Code(), Arena(cells), list[Any]()

    def table(self, rows: Sequence[Sequence[int]], width: int) -> int:
        cells = np.array(rows, np.int64).reshape(-1, width)
        self._held.append(cells)
        self.code.tables.append((cells.ctypes.data, len(cells), width))
        return len(self.code.tables) - 1

    def memo(self, known: dict[tuple[int, ...], int], keys: int, epoch: int = 0) -> int:
        """Return the address of a memo with these values."""
        block = np.full(layout.MEMO_HEAD + 1024 * (keys + 2), layout.MEMO_FREE, np.int64)
        block[layout.MEMO_SLOTS], block[layout.MEMO_KEYS] = 1024, keys
        self._held.append(block)
        if known:
            cells = np.array(list(known), np.int64).reshape(-1, keys)
            epochs, values = np.full(len(known), epoch, np.int64), np.array(list(known.values()), np.int64)
            with wrapping():
                assert insert_values(block, cells, epochs, values) == len(known)
        return int(block.ctypes.data)

    def add(self, code: int, out: int, left: int = -1, memo: int = 0, **given: Any) -> None:
        self.code.add(code, out, left, **given)
        self.code.operations[-1][layout.OPERATION_MEMO] = memo

    def run(self, number: int, epoch: int = 1) -> tuple[int, Rows]:
        """Return the status, and the rows of a table."""
        self.block = self.code.block(self.arena, number)
        found = np.zeros((1, layout.FOUND_WIDTH), np.int64)
        with wrapping():
            assert run_programs(np.array([self.block.ctypes.data]), 0, epoch, False, found) == 1
        status, begin, count, width = found[0].tolist()
        if status != DONE:
            return status, []
        return status, list(map(tuple, self.arena.cells[begin : begin + count * width].reshape(count, width).tolist()))

    def missed(self, keys: int) -> Rows:
        count, address = self.block[layout.PROGRAM_MISSED], self.block[layout.PROGRAM_MISSED_AT]
        return list(map(tuple, self.arena.at(int(address), count * keys).reshape(-1, keys).tolist()))


def condition(op: int, left: int, right: int, term: int, *keys: int) -> Any:
    """Return the parameters of FILTER without a string."""
    return np.array([op, left, right, term, *[0] * layout.TEXT_WIDTH, *keys], np.int64)


def integer(number: int) -> int:
    return int(inlined_id(f'"{number}"^^<{XSD}integer>')[0])  # type: ignore[index]


def decimal(text: str) -> int:
    return int(inlined_id(f'"{text}"^^<{XSD}decimal>')[0])  # type: ignore[index]


def drawn(rng: random.Random, width: int, count: int | None = None) -> Rows:
    """Return rows of few different cells, some of them UNBOUND."""
    size = rng.choice([0, 1, 7, 40]) if count is None else count
    return [tuple(rng.choice([UNBOUND, 2, 4, 6, 8]) for _ in range(width)) for _ in range(size)]


@pytest.mark.parametrize("seed", range(6))
def test_project_picks_columns_terms_and_numbers(seed: int) -> None:
    rows, bench = drawn(random.Random(seed), 3), Bench()
    left, out = bench.table(rows, 3), bench.code.table()
    picks = np.array([(2, 0), (layout.PICK_TERM, 44), (layout.PICK_NUMBER, 0), (0, 0)], np.int64)
    bench.add(layout.PROJECT, out, left, data=picks, count=4)
    assert bench.run(out) == (DONE, [(row[2], 44, at, row[0]) for at, row in enumerate(rows)])


@pytest.mark.parametrize("seed", range(6))
def test_union_appends(seed: int) -> None:
    rng, bench = random.Random(seed), Bench()
    one, other = drawn(rng, 2), drawn(rng, 1)
    left, right, out = bench.table(one, 2), bench.table(other, 1), bench.code.table()
    picks = np.array([(0, 0), (1, 0), (layout.PICK_TERM, UNBOUND), (0, 0)], np.int64)
    bench.add(layout.UNION, out, left, right=right, data=picks, count=2)
    assert bench.run(out) == (DONE, one + [(UNBOUND, *row) for row in other])


@pytest.mark.parametrize("seed", range(12))
def test_limit_cuts_each_part(seed: int) -> None:
    rng, bench = random.Random(seed), Bench()
    rows = [(rng.randrange(4), integer(rng.randrange(5)), at) for at in range(rng.choice([0, 1, 30]))]
    offset, limit = rng.choice([0, 2]), rng.choice([-1, 0, 3])
    left, out = bench.table(rows, 3), bench.code.table()
    bench.add(layout.SORT, out, left, data=np.array([1, 1, offset, limit, 0, 1, 1, 2], np.int64))
    values = {integer(number): number for number in range(5)}
    expected: Rows = []
    for part in sorted({row[0] for row in rows}):
        own = sorted((row for row in rows if row[0] == part), key=lambda row: (-values[row[1]], row[2]))
        expected += own[offset : None if limit < 0 else offset + limit]
    assert bench.run(out) == (DONE, expected)


@pytest.mark.parametrize("seed", range(12))
def test_beside_joins_by_number(seed: int) -> None:
    rng, bench = random.Random(seed), Bench()
    rows = drawn(rng, 1)
    numbers = sorted(rng.choices(range(len(rows)), k=rng.choice([0, 3, 20]))) if rows else []
    found = [(at, number) for at, number in enumerate(numbers)]
    left, right, out = bench.table(rows, 1), bench.table(found, 2), bench.code.table(0, 2)
    picks = np.array([(0, 1), (layout.PICK_RIGHT, 44)], np.int64)
    bench.add(layout.BESIDE, out, left, right=right, data=picks, flag=1)
    expected: Rows = []
    for number, row in enumerate(rows):
        partners = [at for at, own in found if own == number]
        expected += [(at if row[0] == UNBOUND else row[0], at) for at in partners] or [(*row, 44)]
    assert bench.run(out) == (DONE, expected)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_anti", [False, True])
def test_semijoin_keeps_rows_with_or_without_partners(seed: int, is_anti: bool) -> None:
    rng, bench = random.Random(seed), Bench()
    rows = drawn(rng, 2)
    keys = list(dict.fromkeys(row[1] for row in rows))
    numbers = rng.choices(range(len(keys)), k=rng.choice([0, 3, 20])) if rows else []
    out, right = bench.table(rows, 2), bench.table([(number,) for number in numbers], 1)
    distinct, of_rows = bench.code.table(), bench.code.table()
    bench.add(layout.GROUP, distinct, out, right=of_rows, data=np.array([1, 0, 1], np.int64))
    assert bench.run(distinct) == (DONE, [(key,) for key in keys])
    assert bench.run(of_rows) == (DONE, [(keys.index(row[1]),) for row in rows])
    bench.add(layout.SEMIJOIN, out, of_rows, right=right, count=int(is_anti), flag=0)
    assert bench.run(out) == (DONE, [row for row in rows if (keys.index(row[1]) in numbers) != is_anti])


@pytest.mark.parametrize("seed", range(24))
def test_join_pairs_compatible_rows(seed: int) -> None:
    """The first two columns of both sides are the same variables: the first is always bound, the second may not be."""
    rng, bench = random.Random(seed), Bench()
    keys = rng.choice([0, 1])
    left, right = ([(rng.choice([2, 4]), *row) for row in drawn(rng, 2)] for _ in range(2))
    one, other, out = bench.table(left, 3), bench.table(right, 3), bench.code.table()
    shared = [(0, 0), (1, 1)] if keys else [(1, 1)]
    picks = [(0, 0), (1, 1), (2, -1), (-1, 2)] if keys else [(0, -1), (1, 1), (2, -1), (-1, 2)]
    data = np.array([(keys, len(shared) - keys), *shared, *picks], np.int64).ravel()
    bench.add(layout.JOIN, out, one, right=other, data=data, count=4)
    expected: Rows = []
    for row in left:
        for partner in right:
            if keys and row[0] != partner[0]:
                continue
            if UNBOUND in (row[1], partner[1]) or row[1] == partner[1]:
                expected.append((row[0], partner[1] if row[1] == UNBOUND else row[1], row[2], partner[2]))
    assert bench.run(out) == (DONE, expected)


@pytest.mark.parametrize("seed", range(12))
def test_distinct_keeps_the_first(seed: int) -> None:
    rows, bench = drawn(random.Random(seed), 2), Bench()
    left, out = bench.table(rows, 2), bench.code.table()
    bench.add(layout.GROUP, out, left, data=np.array([2, 0, 0, 1], np.int64))
    assert bench.run(out) == (DONE, list(dict.fromkeys(rows)))


def test_filter_compares_numbers_and_iris() -> None:
    rows = [(integer(at), at) for at in (5, 1, 9, 3)]
    bench = Bench()
    out = bench.table(rows, 2)
    bench.add(layout.FILTER, out, data=condition(OP_LESS, 0, -1, integer(5)), memo=bench.memo({}, 0))
    bench.add(layout.FILTER, out, data=condition(IS_OTHER, 1, -1, 3), memo=bench.memo({}, 0))
    assert bench.run(out) == (DONE, [(integer(1), 1)])


def test_filter_stops_at_a_miss_and_resumes() -> None:
    bench, rows = Bench(), [(2, 4), (6, 4), (2, 8), (6, 4)]
    out = bench.table(rows, 2)
    known = {(2, 4): 1, (2, 8): 0}
    bench.add(
        layout.FILTER, out, data=condition(layout.NO_COMPARISON, 0, -1, 0, 0, 1), count=2, memo=bench.memo(known, 2)
    )
    assert bench.run(out)[0] == layout.MEMO_MISS
    assert bench.missed(2) == [(6, 4), (6, 4)]
    bench.code.operations[-1][layout.OPERATION_MEMO] = bench.memo({**known, (6, 4): 1}, 2)
    assert bench.run(out) == (DONE, [(2, 4), (6, 4), (6, 4)])


def test_an_entry_of_an_earlier_epoch_is_a_miss() -> None:
    bench = Bench()
    left, out = bench.table([(2,)], 1), bench.code.table()
    memo = bench.memo({(2,): 44}, 1, epoch=3)
    bench.add(layout.EXTEND, out, left, data=np.array([0], np.int64), count=1, memo=memo)
    assert bench.run(out, epoch=3) == (DONE, [(2, 44)])
    assert bench.run(out, epoch=4)[0] == layout.MEMO_MISS


@pytest.mark.parametrize("seed", range(12))
def test_sort_by_numbers_ties_and_limit(seed: int) -> None:
    rng, bench = random.Random(seed), Bench()
    rows = [(integer(rng.randrange(-3, 4)), rng.randrange(6), at) for at in range(rng.choice([0, 1, 2, 33]))]
    offset, limit, is_descending = rng.choice([0, 2]), rng.choice([-1, 0, 5]), rng.random() < 0.5
    left, out = bench.table(rows, 3), bench.code.table()
    data = np.array([1, 1, offset, limit, -1, 0, int(is_descending), 1], np.int64)
    bench.add(layout.SORT, out, left, data=data)
    values = {integer(number): number for number in range(-3, 4)}
    expected = sorted(rows, key=lambda row: ((-1 if is_descending else 1) * values[row[0]], row[1], row[2]))
    assert bench.run(out) == (DONE, expected[offset : None if limit < 0 else offset + limit])


TEXTS = (
    *("<http://e/a>", "<http://e/ab>", "<http://e/a1>", "_:b1", "_:b11", '""', '"a"', '"a text"', '"a text longer"'),
    *('"a"@de', '"a"@en', '"a\u00e9"', '"a\U0001f600"', '"a\ud7ff"', '"quo"te"', '"<http://e/a>"', '"a text"@en'),
)
OTHERS = (f'"1"^^<{XSD}integer>', '"x"^^<http://e/own>', '"a"@en--ltr', "<<( <http://e/a> <http://e/p> _:b1 )>>")
OPERATORS = {
    **{"=": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
}


def known_terms(texts: Sequence[str], bench: Bench) -> dict[int, str]:
    """Return the ids of terms whose texts the bench reads: half of them by the one dictionary, half by the other."""
    registry = TermRegistry()
    ids = [int(term) for term in term_ids(texts)]
    table = TermTable.of(np.array(ids), [text.encode() for text in texts])
    hashed = [at for at, term in enumerate(ids) if term & 1 == 0]
    registry.persistent.add(table, np.array(hashed[::2], np.int64))
    registry.transient.add(table, np.array(hashed[1::2], np.int64))
    bench.arena.read_by(registry.snapshot_reader())
    return dict(zip(ids, texts, strict=True))


def order_of(text: str | None) -> tuple[Any, ...]:
    """Return the place of a term in ORDER BY, by its text."""
    if text is None:
        return (0,)
    if text[0] != '"':
        return (1, text) if text[0] == "_" else (2, text[1:-1].encode())
    lexical, tag = text[1:].rsplit('"', 1)
    return (10, lexical.encode(), tag)


@pytest.mark.parametrize("seed", range(12))
def test_sort_by_texts(seed: int) -> None:
    rng, bench = random.Random(seed), Bench()
    known: dict[int, str | None] = {**known_terms(TEXTS, bench), UNBOUND: None}
    rows = [(rng.choice(list(known)), at) for at in range(rng.choice([0, 1, 2, 40]))]
    sign = rng.choice([0, 1])
    left, out = bench.table(rows, 2), bench.code.table()
    bench.add(layout.SORT, out, left, data=np.array([1, 1, 0, -1, -1, 0, sign, 1], np.int64))
    expected = sorted(rows, key=lambda row: order_of(known[row[0]]), reverse=sign == 1)
    found = bench.run(out)
    assert [order_of(known[row[0]]) for row in found[1]] == [order_of(known[row[0]]) for row in expected]
    assert Counter(found[1]) == Counter(rows)
    assert all(one[1] < other[1] for one, other in itertools.pairwise(found[1]) if one[0] == other[0])


@pytest.mark.parametrize("other", OTHERS)
def test_sort_of_other_terms_is_left_to_python(other: str) -> None:
    bench = Bench()
    known = known_terms([other, *TEXTS], bench)
    left, out = bench.table([(term,) for term in known], 1), bench.code.table()
    bench.add(layout.SORT, out, left, data=np.array([1, 0, 0, -1, -1, 0, 0], np.int64))
    assert bench.run(out)[0] == layout.HOST


def test_sort_reads_computed_texts_by_a_memo() -> None:
    bench, rows = Bench(), [(2, 0), (4, 1), (6, 2), (2, 3)]
    left, out = bench.table(rows, 2), bench.code.table()
    bench.add(layout.SORT, out, left, data=np.array([1, 1, 0, -1, -1, 0, 0, 1], np.int64), memo=bench.memo({}, 1))
    assert bench.run(out)[0] == layout.MEMO_MISS
    assert bench.missed(1) == [(2,), (4,), (6,), (2,)]
    registry = TermRegistry()
    terms, texts = QueryTerms(registry, registry.snapshot_reader()), TextMemo()
    terms._computed.update({2: '"the last text"', 4: "_:b", 6: '"a text"'})
    texts.insert(np.array([[2], [4], [6], [2]], np.int64), np.zeros_like, terms, 1)
    bench.code.operations[-1][layout.OPERATION_MEMO] = texts.address
    assert bench.run(out) == (DONE, [(4, 1), (6, 2), (2, 0), (2, 3)])


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("constant", [None, '"a"', '"a text"', '""'])
def test_filter_compares_texts(op: str, constant: str | None) -> None:
    """The memo, in which no row holds, is asked where texts do not decide."""
    bench = Bench()
    known = known_terms([*TEXTS, *OTHERS], bench)
    texts = {text: term for term, text in known.items()}
    rows = [(one, texts[constant] if constant is not None else other) for one in known for other in known]
    rows = list(dict.fromkeys(rows))
    out, entry = bench.table(rows, 2), [0] * layout.TEXT_WIDTH
    if constant is not None:
        lexical = np.frombuffer(constant[1:].encode(), np.uint8)
        entry[:4] = layout.CLASS_STRING, lexical.ctypes.data, len(lexical) - 1, 1
    data = np.array([OPS[op], 0, 1 if constant is None else -1, NO_MATCH, *entry, 0, 1], np.int64)
    memo = bench.memo(dict.fromkeys(rows, 7), 2)
    bench.add(layout.FILTER, out, data=data, count=2, memo=memo)
    expected, others = [], 0
    for row in rows:
        one, other = known[row[0]], known[row[1]]
        are_plain = all(text[0] in "<_" or text[-1] == '"' for text in (one, other) if text not in OTHERS)
        if one == other == OTHERS[0]:  # numbers
            if op in ("=", "<=", ">="):
                expected.append(row)
        elif not are_plain or one in OTHERS or other in OTHERS:
            others += 1
        elif one[0] == other[0] == '"' or op in ("=", "!="):
            if OPERATORS[op](order_of(one), order_of(other)):
                expected.append(row)
        else:
            others += 1
    status, found = bench.run(out)
    assert (status, found) == (DONE, expected)
    assert others > 0


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_those_of_a_loop(seed: int) -> None:
    rng, bench = random.Random(seed), Bench()
    keys = rng.choice([0, 1, 2])
    numbers = {integer(number): (number, False) for number in range(-2, 5)}
    numbers |= {decimal(text): (float(text), True) for text in ("0.5", "-1.25", "2.0")}
    rows = [
        (rng.choice([2, 4]), rng.choice([UNBOUND, 6]), rng.choice(list(numbers)), rng.choice([UNBOUND, 8, 10]))
        for _ in range(rng.choice([0, 1, 30]))
    ]
    left, out = bench.table(rows, 4), bench.code.table(0, keys + 4)
    cells = [layout.COUNT_ROWS, 0, layout.COUNT_TERMS, 3, layout.COUNT_DISTINCT, 3, layout.SUM, 2]
    bench.add(layout.GROUP, out, left, data=np.array([keys, 4, *range(keys), *cells], np.int64))
    status, found = bench.run(out)
    assert status == DONE
    groups: dict[tuple[int, ...], Rows] = {} if keys else {(): []}
    for row in rows:
        groups.setdefault(row[:keys], []).append(row)
    assert [row[:keys] for row in found] == list(groups)
    for row in found:
        own = groups[row[:keys]]
        terms = [one[3] for one in own if one[3] != UNBOUND]
        assert row[keys : keys + 3] == (integer(len(own)), integer(len(terms)), integer(len(set(terms))))
        total = sum(numbers[one[2]][0] for one in own)
        is_decimal = any(numbers[one[2]][1] for one in own)
        text = f"{total:.2f}".rstrip("0").rstrip(".")
        assert row[keys + 3] == (decimal(text) if is_decimal else integer(int(total)))


@pytest.mark.parametrize("code", [layout.MIN, layout.MAX])
def test_extremes_of_numbers(code: int) -> None:
    rng = random.Random(code)
    rows = [(rng.choice([2, 4, 6]), integer(rng.randrange(-9, 9))) for _ in range(40)] + [(6, UNBOUND)]
    values = {integer(number): number for number in range(-9, 9)}
    bench = Bench()
    left, out = bench.table(rows, 2), bench.code.table(0, 2)
    bench.add(layout.GROUP, out, left, data=np.array([1, 1, 0, code, 1], np.int64))
    best = min if code == layout.MIN else max
    expected = {
        key: integer(best(values[value] for own, value in rows if own == key and value != UNBOUND)) for key in (2, 4)
    }
    assert dict(bench.run(out)[1]) == {**expected, 6: UNBOUND}, "an unbound row is an error"


@pytest.mark.parametrize("code", [layout.MIN, layout.MAX, layout.SAMPLE])
@pytest.mark.parametrize("seed", range(4))
def test_extremes_of_texts(code: int, seed: int) -> None:
    rng, bench = random.Random(seed), Bench()
    known = known_terms(TEXTS, bench)
    rows = [(rng.choice([2, 4, 6]), rng.choice(list(known))) for _ in range(rng.choice([0, 1, 5, 40]))]
    rows += [(6, UNBOUND)] * (len(rows) > 1)
    rng.shuffle(rows)
    left, out = bench.table(rows, 2), bench.code.table(0, 2)
    bench.add(layout.GROUP, out, left, data=np.array([1, 1, 0, code, 1], np.int64))
    best = max if code == layout.MAX else min
    expected = dict.fromkeys((key for key, _ in rows), UNBOUND)
    for key in expected:
        terms = [term for own, term in rows if own == key]
        bound = [term for term in terms if term != UNBOUND]
        if bound and (code == layout.SAMPLE or bound == terms):
            expected[key] = best(bound, key=lambda term: order_of(known[term]))
    assert bench.run(out) == (DONE, list(expected.items()))


@pytest.mark.parametrize("other", OTHERS[1:])
def test_extremes_of_other_terms_are_left_to_python(other: str) -> None:
    bench = Bench()
    known = known_terms([other, TEXTS[0]], bench)
    left, out = bench.table([(term,) for term in known], 1), bench.code.table(0, 1)
    bench.add(layout.GROUP, out, left, data=np.array([0, 1, layout.MIN, 0], np.int64))
    assert bench.run(out)[0] == layout.HOST


def test_extremes_read_computed_texts_by_a_memo() -> None:
    bench, rows = Bench(), [(2,), (4,), (6,), (2,)]
    left, out = bench.table(rows, 1), bench.code.table(0, 1)
    data = np.array([0, 1, layout.MAX, 0], np.int64)
    bench.add(layout.GROUP, out, left, data=data, memo=bench.memo({}, 1))
    assert bench.run(out)[0] == layout.MEMO_MISS
    assert set(bench.missed(1)) <= {(2,), (4,), (6,)}
    registry = TermRegistry()
    terms, texts = QueryTerms(registry, registry.snapshot_reader()), TextMemo()
    terms._computed.update({2: '"the last text"', 4: "_:b", 6: '"a text"'})
    texts.insert(np.array([[2], [4], [6], [2]], np.int64), np.zeros_like, terms, 1)
    bench.code.operations[-1][layout.OPERATION_MEMO] = texts.address
    assert bench.run(out) == (DONE, [(2,)])


@pytest.mark.parametrize(
    ("code", "cells"),
    [
        (layout.SUM, (2, 4)),
        (layout.MIN, (2, 4)),
        (layout.MAX, (decimal("1.5"), integer(1))),
    ],
)
def test_terms_that_ids_do_not_determine_are_left_to_python(code: int, cells: tuple[int, int]) -> None:
    bench = Bench()
    left, out = bench.table([(cell,) for cell in cells], 1), bench.code.table(0, 1)
    bench.add(layout.GROUP, out, left, data=np.array([0, 1, code, 0], np.int64))
    assert bench.run(out)[0] == layout.HOST


@pytest.mark.parametrize("cells", [0, 3, 10, 40])
def test_a_full_arena_falls_back(cells: int) -> None:
    rows = [(at, at) for at in range(30)]
    for code, data, count in (
        (layout.PROJECT, [(0, 0), (1, 0)], 2),
        (layout.SORT, [0, 1, 0, -1, -1, 0], 0),
        (layout.GROUP, [1, 1, 0, layout.COUNT_ROWS, 0], 0),
        (layout.EXTEND, [0], 1),
        (layout.JOIN, [0, 0, 0, -1], 1),
    ):
        bench = Bench(cells)
        left = bench.table(rows, 2)
        out = bench.code.table(0, 2)
        memo = bench.memo({}, 1)
        bench.add(code, out, left, right=left, data=np.array(data, np.int64), count=count, memo=memo)
        assert bench.run(out)[0] == layout.FALL_BACK, code


def test_memos_hold_what_a_dictionary_holds() -> None:
    rng, bench = random.Random(3), Bench()
    known = {(rng.randrange(50), rng.choice([UNBOUND, 2, 4])): rng.randrange(9) for _ in range(90)}
    rows = [(one, other) for one in range(50) for other in (UNBOUND, 2, 4)]
    left, out = bench.table([row for row in rows if row in known], 2), bench.code.table()
    memo = bench.memo(known, 2)
    bench.add(layout.EXTEND, out, left, data=np.array([0, 1], np.int64), count=2, memo=memo)
    status, found = bench.run(out)
    assert status == DONE
    assert Counter(found) == Counter((*key, value) for key, value in known.items())
