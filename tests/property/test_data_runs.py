"""DATA blocks read as runs, and by tokens alone: the same quads, or the same error at the same place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import example, given, target
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from wukongs.csparql.algebra import Project
from wukongs.csparql.data_runs import scan
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.updates import DeleteData, InsertData, Modify, Operation
from wukongs.errors import QuerySyntaxError, UnsupportedFeatureError

HEAD = "PREFIX ex: <http://ex/> PREFIX : <http://other/#> "
BASE = "http://base/dir/file"

blanks = st.sampled_from([" ", " ", " ", "", "\n", "\t", " # a <comment> . ;\n", "\r\n"])
iris = st.sampled_from(
    r"""<http://ex/a> <http://ex/b> <rel> <> <#f> <http://ex/\u00e9> <urn:é> ex:a ex:b ex:a.b ex: :x : ex:1 ex:a%20b
    ex:a\,b ex:é graph:g a:b""".split()  # noqa: SIM905
)
verbs = iris | st.just("a")
labels = st.sampled_from(["_:b", "_:c", "_:b.c", "_:1", "_:é"])
_LITERALS = r""""a" 'a' "" "it's" 'so"so' "a\"b\n" 'a\'b' "é\u00e9" "x"@en "x"@EN-gb "x"@en--ltr 'x'@de "5"^^ex:int
    "5"^^<http://www.w3.org/2001/XMLSchema#int> "s"^^<http://www.w3.org/2001/XMLSchema#string> "r"^^<rel> "b"^^:
    'a'^^<x> 1 0 -1 +7 1.5 -.5 5. 1e3 -1.5E-2 1.e1 .5e0 true FALSE True"""
_SPACED = ["''", "'''x'''", '"""long\n"one" """', '"a" @en', '"a" ^^ ex:t']
literals = st.sampled_from([*_LITERALS.split(), *_SPACED])
_NODES = "[]|[ ex:p 1 ]|()|(1 ex:a)|<<( <a> <b> <c> )>>|<<( _:b <b> <c> )>>|<< <a> <b> <c> >>|<a> ~ <r>"
odd = st.sampled_from([*_NODES.split("|"), "<a> {| <p> 1 |}"])
_WRONG = r"""?x un:known "x"@en--up "\x" <\u0020> "open a 5x @en ^^ tru un: \u0041 . ; , { } GRAPH _: < " é -"""
wrong = st.sampled_from([*_WRONG.split(), "<a b>", "GRAPH ex:g {", "GRAPH ?g {", "'''", "\x00", "1 2 3"])
subjects = iris | labels
objects = iris | iris | literals | literals | labels


@st.composite
def statements(draw: st.DrawFn) -> list[str]:
    """One statement, as pieces of text."""
    may_be_odd = draw(st.integers(0, 7)) == 0
    term = objects | odd if may_be_odd else objects
    parts = [draw(subjects | odd | literals if may_be_odd else subjects)]
    for number in range(draw(st.integers(1, 3))):
        if number:
            parts.append(draw(st.sampled_from([";", "; ;"])))
        parts += [draw(verbs), draw(term)]
        for _ in range(draw(st.integers(0, 2))):
            parts += [",", draw(term)]
    if draw(st.integers(0, 5)) == 0:
        parts.append(";")
    return [*parts, "."]


@st.composite
def blocks(draw: st.DrawFn) -> list[str]:
    """A DATA block with its braces."""
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        inside = [piece for statement in draw(st.lists(statements(), max_size=4)) for piece in statement]
        if draw(st.integers(0, 2)):
            parts += inside
        else:
            has_dot = draw(st.booleans())
            if len(inside) > 0 and draw(st.booleans()):
                inside.pop()
            parts += [draw(st.sampled_from(["GRAPH", "graph"])), draw(iris), "{", *inside, "}", *["."] * has_dot]
    if parts and parts[-1] == "." and draw(st.booleans()):
        parts.pop()
    return ["{", *parts, "}"]


@st.composite
def requests(draw: st.DrawFn) -> str:
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        parts += [draw(st.sampled_from(["INSERT DATA", "INSERT DATA", "delete data"])), *draw(blocks()), ";"]
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        at = draw(st.integers(0, len(parts) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                del parts[at]
            case 1:
                parts.insert(at, draw(wrong))
            case 2:
                parts.insert(at, parts[draw(st.integers(0, len(parts) - 1))])
            case _:
                parts[at] = parts[at][: draw(st.integers(0, len(parts[at])))]
    return HEAD + "".join(part + draw(blanks) for part in parts)


def outcome(text: str, base: str | None, runs: bool) -> object:
    """The operations of a request with their quads counted, or its whole error."""
    try:
        operations = parse_update(text, base, runs=runs).operations
    except (QuerySyntaxError, UnsupportedFeatureError) as error:
        return type(error), str(error), error.line, error.column, error.excerpt
    return [_counted(operation) for operation in operations]


def _counted(operation: Operation) -> object:
    match operation:
        case InsertData() | DeleteData():
            return type(operation), Counter(quads_of(operation))
        case Modify():
            where = operation.where  # names its variables in the order of the quads, which differs
            assert isinstance(where.pattern, Project)
            names = sorted(where.variables), sorted(variable.name for variable in where.pattern.variables)
            return where.pattern.pattern, where.dataset, names, Counter(operation.insert)
    return operation


def quads_of(operation: InsertData | DeleteData) -> list[object]:
    return [*operation.quads, *(quad for columns in operation.columns for quad in columns.quads())]


@fuzzed(600)
@given(requests(), st.sampled_from([None, BASE]))
@example(HEAD + "INSERT DATA { ex:a ex:b ex:c . un:a ex:b 1 . ex:a ex:b 2 }", None)
@example(HEAD + "INSERT DATA { GRAPH ex:g { ex:a ex:b ex:c . ex:a un:b 1 . ex:a ex:b 2 } ex:a ex:b 3 }", None)
@example(
    HEAD + "INSERT DATA { _:a ex:b 1 . _:b ex:b 2 } ; INSERT DATA { ex:a ex:b 1 . ex:c ex:b _:b . _:a ex:c 3 . }", None
)
@example(HEAD + "DELETE DATA { ex:a ex:b ex:c . ex:a ex:b _:b . ex:a ex:b _:c . ?x ex:b 1 }", None)
@example(HEAD + 'DELETE DATA { ex:a ex:b _:c . ex:a ex:b "\\x" }', None)
@example(HEAD + "INSERT DATA { ex:a ex:b _:b } ; INSERT DATA { GRAPH ex:g { ex:a ex:b 1 . ex:a ex:b _:b . } }", None)
@example(HEAD + "INSERT DATA { ex:a ex:b 1 . 'lit' ex:b 1 . un:a ex:b 1 }", None)
@example(HEAD + "INSERT DATA { GRAPH un:g { } ex:a ex:b 1 . }", None)
@example(HEAD + "INSERT DATA { GRAPH un:g { ex:a ex:b 1 } . ex:a ex:b 1 . }", None)
@example(HEAD + "INSERT DATA { ex:a ex:b 1 ; . GRAPH ex:g { ex:a ex:b 1 ; } . ex:a ex:b 1 ; ; }", None)
@example(HEAD + "INSERT DATA { ex:a ex:b 1.5 . ex:a ex:b 5. ex:a ex:b .5.ex:a ex:b 5.e1.}", None)
@example(HEAD + "INSERT DATA { ex:a ex:b <<( _:x ex:p 1 )>> . ex:a ex:b _:x . }", None)
@example(HEAD + "INSERT DATA { ex:a ex:b 1 . \\u0065x:a ex:b 1 . }", None)
@example(HEAD + "INSERT DATA { GRAPH:x { ex:a ex:b 1 } GRAPH<http://ex/g>{ ex:a ex:b 1 } }", None)
@example(HEAD + "INSERT DATA { GRAPHé:x { ex:a ex:b 1 } }", None)
@example(HEAD + "INSERT DATA { ex:a ex:b 1 . _:b ex:p 2 . ex:a ex:b <<( _:b ex:p 1 )>> }", None)
@example(HEAD + "INSERT DATA { ex:a ex:b 1 GRAPH ex:g { ex:a ex:b 1 } }", None)
def test_runs_and_tokens_agree(text: str, base: str | None) -> None:
    expected = outcome(text, base, runs=False)
    target(float(isinstance(expected, list)))
    assert outcome(text, base, runs=True) == expected


@fuzzed(100)
@given(requests(), st.integers(0, 12))
def test_a_run_is_cut_at_a_row_without_losing_any(text: str, rows_max: int) -> None:
    """scan with a bound reads the beginning of what it reads without."""
    start = text.find("{") + 1
    whole = scan(text, start, False)
    part = scan(text, start, False, rows_max)
    if whole is None or part is None:
        assert part is None
        return
    rows = len(part.objects)
    assert rows <= max(rows_max, 0)
    assert rows == len(whole.objects) or rows < len(whole.objects)
    for column in ("subjects", "predicates", "objects", "graphs"):
        assert getattr(part, column) == getattr(whole, column)[:rows]
    assert part.terms == whole.terms[: len(part.terms)]
    assert part.stop <= whole.stop


def plain(count: int, line: Callable[[int], str]) -> str:
    return HEAD + "INSERT DATA {\n" + "".join(line(number) for number in range(count)) + "}"


@pytest.mark.parametrize(
    "line",
    [
        lambda i: f'<http://ex/{i}> <http://ex/p> "{i}"^^<http://ex/t> .\n',
        lambda i: f"ex:{i} a ex:T ; ex:p {i} , -{i}.5 ; ex:q _:b{i}, 'x'@en .\n",
        lambda i: f"GRAPH ex:g{i} {{ ex:{i} ex:p true }}\n",
    ],
)
def test_plain_data_is_one_run(line: Callable[[int], str]) -> None:
    text = plain(300, line)
    (operation,) = parse_update(text).operations
    assert isinstance(operation, InsertData)
    assert operation.quads == ()
    assert len(operation.columns) == 1
    (slow,) = parse_update(text, runs=False).operations
    assert isinstance(slow, InsertData)
    assert Counter(quads_of(operation)) == Counter(slow.quads)


@pytest.mark.parametrize("place", [0, 1, 150, 298, 299])
@pytest.mark.parametrize("in_graph", [False, True])
def test_an_odd_statement_costs_no_more_than_itself(place: int, in_graph: bool) -> None:
    text = plain(300, lambda i: f"ex:{i} ex:p [ ex:q {i} ] .\n" if i == place else f"ex:{i} ex:p {i} .\n")
    if in_graph:
        text = text.replace("DATA {", "DATA { GRAPH ex:g {") + "}"
    (operation,) = parse_update(text).operations
    assert isinstance(operation, InsertData)
    assert len(operation.quads) == 2
    assert sum(len(columns.objects) for columns in operation.columns) == 299


@pytest.mark.parametrize("place", [0, 1, 150, 299])
@pytest.mark.parametrize("in_graph", [False, True])
def test_an_error_in_much_data_is_found_without_cutting_all_of_it(
    place: int, in_graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wukongs.csparql import data_runs

    made: list[int] = []
    read = data_runs.read_tokens  # type: ignore[attr-defined]

    def counting(text: str, start: int, tokens: list[object], last: object, source: str) -> int:
        before = len(tokens)
        end = read(text, start, tokens, last, source)  # type: ignore[arg-type]
        made.append(len(tokens) - before)
        return end

    monkeypatch.setattr(data_runs, "read_tokens", counting)
    text = plain(300, lambda i: f"un:{i} ex:p {i} .\n" if i == place else f"ex:{i} ex:p {i} .\n")
    if in_graph:
        text = text.replace("DATA {", "DATA { GRAPH ex:g {") + "}"
    with pytest.raises(
        QuerySyntaxError, match=rf"line {place + 2}, column 1: expected a prefix that the query declares"
    ):
        parse_update(text)
    assert sum(made) < 40
