"""Property paths: their grammar, their text, what they are translated to, and their automata."""

from __future__ import annotations

import itertools

import pytest

from wukongs.csparql.algebra import DEFAULT, Bgp, Call, Filter, Join, Node, PathPattern, Project, TriplePattern, Union
from wukongs.csparql.automaton import Automaton, automaton
from wukongs.csparql.parser import parse_query
from wukongs.csparql.paths import (
    Alternative,
    Inverse,
    NegatedSet,
    OneOrMore,
    Path,
    PathSequence,
    Repeated,
    ZeroOrMore,
    ZeroOrOne,
    format_path,
    is_nullable,
    reaches_outside,
)
from wukongs.csparql.terms import RDF, Term, Variable, iri
from wukongs.errors import QuerySyntaxError

S, T = Variable("s"), Variable("o")
B1, B2 = Variable(".blank1"), Variable(".blank2")
P, Q, R = iri("p"), iri("q"), iri("r")
A = iri(RDF + "type")


def pattern_of(text: str) -> Node:
    node = parse_query(f"SELECT * {{ {text} }}").pattern
    assert isinstance(node, Project)
    return node.pattern


def path_of(text: str) -> Path:
    """The path inside of an optional one, which is never taken apart."""
    node = pattern_of(f"?s ({text})? ?o")
    assert isinstance(node, PathPattern)
    assert isinstance(node.path, ZeroOrOne)
    return node.path.path


def whole_path_of(text: str) -> Path:
    node = pattern_of(f"?s {text} ?o")
    assert isinstance(node, PathPattern)
    return node.path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("<p>", P),
        ("a", A),
        ("^<p>", Inverse(P)),
        ("<p>/<q>", PathSequence(P, Q)),
        ("<p>|<q>", Alternative(P, Q)),
        ("<p>*", ZeroOrMore(P)),
        ("<p>+", OneOrMore(P)),
        ("<p>?", ZeroOrOne(P)),
        ("<p>{2}", Repeated(P, 2, 2)),
        ("<p>{0}", Repeated(P, 0, 0)),
        ("<p> { 1 , 4 }", Repeated(P, 1, 4)),
        ("<p>{2,}", Repeated(P, 2, None)),
        ("<p>{,4}", Repeated(P, 0, 4)),
        ("<p>{0,3}", Repeated(P, 0, 3)),
        ("<p>{1,}", OneOrMore(P)),
        ("<p>{0,}", ZeroOrMore(P)),
        ("<p>{,1}", ZeroOrOne(P)),
        ("^<p>{3}", Inverse(Repeated(P, 3, 3))),
        ("(<p>/<q>{2})*", ZeroOrMore(PathSequence(P, Repeated(Q, 2, 2)))),
        ("(<p>|^<q>){1,999999999999999}", Repeated(Alternative(P, Inverse(Q)), 1, 10**15 - 1)),
        ("<p>/<q>|<r>", Alternative(PathSequence(P, Q), R)),
        ("<p>|<q>/<r>", Alternative(P, PathSequence(Q, R))),
        ("<p>/(<q>|<r>)", PathSequence(P, Alternative(Q, R))),
        ("^<p>/<q>", PathSequence(Inverse(P), Q)),
        ("^(<p>/<q>)", Inverse(PathSequence(P, Q))),
        ("^<p>*", Inverse(ZeroOrMore(P))),
        ("(^<p>)*", ZeroOrMore(Inverse(P))),
        ("(<p>*)+", OneOrMore(ZeroOrMore(P))),
        ("(<p>/<q>)*", ZeroOrMore(PathSequence(P, Q))),
        ("^(^<p>)", Inverse(Inverse(P))),
        ("!<p>", NegatedSet((P,), None)),
        ("!a", NegatedSet((A,), None)),
        ("!^<p>", NegatedSet(None, (P,))),
        ("!(<p>)", NegatedSet((P,), None)),
        ("!(<p>|^<q>|a|^a)", NegatedSet((P, A), (Q, A))),
        ("!(^<p>|<p>|^<p>)", NegatedSet((P,), (P,))),
        ("!()", NegatedSet((), None)),
        ("!<p>*", ZeroOrMore(NegatedSet((P,), None))),
        ("<p>/<q>/<r>", PathSequence(PathSequence(P, Q), R)),
        ("<p>|<q>|<r>", Alternative(Alternative(P, Q), R)),
        ("<p>/^<q>*/!(<r>|a)|a+", Alternative(
            PathSequence(PathSequence(P, Inverse(ZeroOrMore(Q))), NegatedSet((R, A), None)), OneOrMore(A)
        )),
    ],
)  # fmt: skip
def test_grammar_and_text(text: str, path: Path) -> None:
    read = whole_path_of if "999" in text else path_of  # below another repetition so much is not written out
    assert read(text) == path
    assert read(format_path(path)) == path


def test_text_needs_few_parentheses() -> None:
    for text in (
        "^(<p>|<q>)*",
        "(<p>/<q>)+",
        "!(<p>|^<q>)",
        "!<p>",
        "!^a",
        "<p>/(<q>|<r>)/a",
        "<p>|<q>/<r>",
        "(<p>?)*",
        "<p>{2}/<q>{3,4}|a{2,}",
        "(<p>{2}){3}",
        "^<p>{0,2}",
        "(^<p>){0,2}",
    ):
        assert format_path(path_of(text)) == text


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("?s <p> ?o", Bgp((TriplePattern(S, P, T),))),
        ("?s ^<p> ?o", Bgp((TriplePattern(T, P, S),))),
        ("?s <p>/^<q> ?o", Bgp((TriplePattern(S, P, B1), TriplePattern(T, Q, B1)))),
        ("?s ^(<p>/<q>) ?o", Bgp((TriplePattern(T, P, B1), TriplePattern(B1, Q, S)))),
        ("?s <p>|^<q> ?o", Union(Bgp((TriplePattern(S, P, T),)), Bgp((TriplePattern(T, Q, S),)))),
        ("?s <p>* ?o", PathPattern(S, ZeroOrMore(P), T, DEFAULT)),
        ("?s ^<p>* ?o", PathPattern(T, ZeroOrMore(P), S, DEFAULT)),
        ("?s <p>/<q>+ ?o", Join(Bgp((TriplePattern(S, P, B1),)), PathPattern(B1, OneOrMore(Q), T))),
        ("?s <p>{1} ?o", Bgp((TriplePattern(S, P, T),))),
        ("?s <p>/<q>{1,3} ?o", Join(Bgp((TriplePattern(S, P, B1),)), PathPattern(B1, Repeated(Q, 1, 3), T))),
        ("?s (<p>|<q>){1} ?o", PathPattern(S, Repeated(Alternative(P, Q), 1, 1), T)),
        ("?s <p>+5", Bgp((TriplePattern(S, P, Term('"+5"^^<http://www.w3.org/2001/XMLSchema#integer>')),))),
        (
            "?s !(<p>|<q>) ?o",
            Filter(Call("NOTIN", (B1, P, Q)), Bgp((TriplePattern(S, B1, T),))),
        ),
        (
            "?s !(<p>|^<q>) ?o",
            Union(
                Filter(Call("NOTIN", (B1, P)), Bgp((TriplePattern(S, B1, T),))),
                Filter(Call("NOTIN", (B2, Q)), Bgp((TriplePattern(T, B2, S),))),
            ),
        ),
        ("?s !() ?o", Bgp((TriplePattern(S, B1, T),))),
        ("?s <p> ?o ; <q>+ 1 , 2", Join(Join(
            Bgp((TriplePattern(S, P, T),)),
            PathPattern(S, OneOrMore(Q), Term('"1"^^<http://www.w3.org/2001/XMLSchema#integer>'))),
            PathPattern(S, OneOrMore(Q), Term('"2"^^<http://www.w3.org/2001/XMLSchema#integer>')))),
        ("[] <p>* ?o", PathPattern(B1, ZeroOrMore(P), T)),
        ("[ <p>+ ?o ]", PathPattern(B1, OneOrMore(P), T)),
        ("[ ^<p> ?o ] <q> ?s", Bgp((TriplePattern(T, P, B1), TriplePattern(B1, Q, S)))),
        ("GRAPH ?g { ?s <p>+ ?o }", PathPattern(S, OneOrMore(P), T, Variable("g"))),
    ],
)  # fmt: skip
def test_translation(text: str, node: Node) -> None:
    assert pattern_of(text) == node


def test_a_path_without_length_does_not_say_that_its_graph_exists() -> None:
    node = pattern_of("GRAPH <g> { ?s <p>* ?o }")
    assert isinstance(node, Join)
    assert node.right == PathPattern(S, ZeroOrMore(P), T, iri("g"))


def test_labels_of_blank_nodes_hold_across_paths() -> None:
    node = pattern_of("_:x <p>+ ?s . ?o <q> _:x")
    assert node == Join(Bgp((TriplePattern(T, Q, B1),)), PathPattern(B1, OneOrMore(P), S))


def test_filters_and_optionals_keep_their_paths() -> None:
    node = pattern_of("OPTIONAL { ?s <p>+ ?o } ?s <q>* ?o")
    assert isinstance(node, Join)
    assert node.right == PathPattern(S, ZeroOrMore(Q), T)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * { ?s <p>/ ?o }", "column 20: expected a property path: an IRI, 'a', '^', '!' or '(', found '?o'"),
        (
            "SELECT * { ?s (<p> ?o }",
            "column 20: expected ')', or '/', '|', '*', '+', '?' or '{' to go on with the path",
        ),
        ("SELECT * { ?s ^^<p> ?o }", "expected a predicate: an IRI, a variable, 'a' or a property path, found '^^'"),
        ("SELECT * { ?s ^?p ?o }", "expected a property path: an IRI, 'a', '^', '!' or '(', found '?p'"),
        ("SELECT * { ?s <p>** ?o }", "column 19: expected an object"),
        ("SELECT * { ?s !(<p>/<q>) ?o }", "column 20: expected ')' or '|' in the negated property set, found '/'"),
        ("SELECT * { ?s !(<p>|?q) ?o }", "expected an IRI, 'a' or '^' with one of them, in the negated property set"),
        ("SELECT * { ?s !!<p> ?o }", "expected an IRI, 'a' or '^' with one of them, in the negated property set"),
        ("SELECT * { ?s <p>{2}* ?o }", "column 21: expected an object"),
        ("SELECT * { ?s <p>{ ?o }", "column 20: expected how often the path is repeated, such as {2}, {1,4}, {2,} or "),
        ("SELECT * { ?s <p>{} ?o }", "column 19: expected how often the path is repeated"),
        ("SELECT * { ?s <p>{,} ?o }", "column 20: expected how often the path is repeated, such as {2}, {1,4}"),
        ("SELECT * { ?s <p>{-1,2} ?o }", "column 19: expected how often the path is repeated"),
        ("SELECT * { ?s <p>{1.5} ?o }", "column 19: expected how often the path is repeated"),
        (
            "SELECT * {\n?s <p>{4,1} ?o }",
            "line 2, column 10: expected a number of at least 4 and at most 15 digits, fou",
        ),
        ("SELECT * { ?s <p>{1,-4} ?o }", "column 21: expected a number of at least 1 and at most 15 digits, found '-'"),
        ("SELECT * { ?s <p>{1;4} ?o }", "column 20: expected '}' after the bounds of the repetition, found ';'"),
        ("SELECT * { ?s <p>{1,4 ?o }", "column 23: expected '}' after the bounds of the repetition, found '?o'"),
        (
            "SELECT * { ?s <p>{1,1000000000000000} ?o }",
            "column 21: expected a number of at least 1 and at most 15 digits",
        ),
        ("SELECT * { ?s <p>{257} ?o }", "column 15: expected a path of at most 256 links, with its repetitions {n,m} "),
        ("SELECT * { ?s (<p>/<q>){1,200} ?o }", "written out, found one of 400"),
        ("SELECT * { ?s (<p>{16}/<q>){17,} ?o }", "found one of 289"),
        ("SELECT * { ?s (<p>{1,300})* ?o }", "found one of 300"),
        (
            "CONSTRUCT { ?s <p>{2} ?o } {}",
            "column 16: expected an IRI, a variable or 'a' as the predicate of a template",
        ),
        ("CONSTRUCT { ?s <p>* ?o } {}", "column 16: expected an IRI, a variable or 'a' as the predicate of a template"),
        (
            "CONSTRUCT WHERE { ?s ^<p> ?o }",
            "expected an IRI, a variable or 'a' as the predicate of a template, found a ",
        ),
        ("CONSTRUCT { ?s 1 ?o } {}", "column 16: expected a predicate: an IRI, a variable or 'a', found '1'"),
    ],
)
def test_refused(text: str, expected: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    assert expected in str(caught.value)


def test_long_and_deep_paths() -> None:
    assert isinstance(pattern_of(f"?s ({'/'.join(['<p>'] * 20_000)})* ?o"), PathPattern)
    assert isinstance(pattern_of(f"?s {'|'.join(['<p>'] * 20_000)} ?o"), Union)
    with pytest.raises(QuerySyntaxError, match="nested less deeply"):
        pattern_of(f"?s {'(' * 20_000}<p>{')' * 20_000} ?o")


# --- no length --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nullable", "outside"),
    [
        # outside: with both ends free, a constant subject, a constant object, two constants
        ("<p>", False, "...."),
        ("!<p>", False, "...."),
        ("<p>+", False, "...."),
        ("<p>*", True, ".###"),
        ("<p>?", True, ".###"),
        ("(<p>?)+", True, ".###"),
        ("^<p>*", True, ".###"),
        ("<p>*|<q>", True, ".###"),
        ("<p>*/<q>", False, "...."),
        ("<p>*/<q>*", True, "...#"),
        ("(<p>*/<q>*)+", True, "...."),
        ("(<p>*/<q>*)?", True, ".###"),
        ("^(<p>*/<q>*)", True, "...#"),
        ("<p>{0}", True, ".###"),
        ("<p>{0,3}", True, ".###"),
        ("<p>{2}", False, "...."),
        ("(<p>?){2,3}", True, ".###"),
        ("(<p>*/<q>*){2}", True, "...."),
    ],
)
def test_paths_without_length(text: str, nullable: bool, outside: str) -> None:
    path = path_of(text)
    assert is_nullable(path) is nullable
    ends = [(False, False), (True, False), (False, True), (True, True)]
    assert "".join("#" if reaches_outside(path, *each) else "." for each in ends) == outside


# --- automata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("<p>{2}", 3),
        ("<p>{2,4}", 5),
        ("(<p>/<q>){2,}", 5),
        ("<p>*", 1),
        ("<p>+", 2),
        ("<p>?", 1),
        ("(<p>/<q>)?", 3),
        ("(<p>|^<q>)*", 1),
        ("(<p>/<q>)*", 2),
        ("(<p>*)*", 1),
        ("((<p>?)+)?", 1),
    ],
)
def test_like_states_are_merged(text: str, states: int) -> None:
    assert len(automaton(path_of(text)).edges) == states


Word = tuple[tuple[str, str], ...]
LENGTH_MAX = 4


@pytest.mark.parametrize(
    "text",
    [
        "<p>", "^<p>", "<p>/<q>", "<p>|<q>", "<p>*", "<p>+", "<p>?", "(<p>/<q>)*", "(<p>|^<q>)+", "^(<p>/<q>+)",
        "(<p>*/<q>)+", "(<p>/<q>?)*", "((<p>|<q>)/<r>)*", "<p>?/<q>?", "(<p>?/<q>*)+|<r>", "^((<p>/^<q>)*/<r>)",
        "<p>{0}", "<p>{1}", "<p>{1,3}", "<p>{,2}", "<p>{2,3}", "<p>{3,}", "^(<p>/<q>{1,2})", "(<p>/<q>){0,2}",
        "(<p>?/<q>){1,2}", "(<p>|<q>){2}", "((<p>?){2}/<q>?){0,2}", "(<p>*){2,3}",
    ],
)  # fmt: skip
def test_automata_spell_the_words_of_their_paths(text: str) -> None:
    path = path_of(text)
    found = automaton(path)
    letters = sorted({(link.direction, str(link.predicate)) for link in found.links()})
    words = {word for n in range(LENGTH_MAX + 1) for word in itertools.product(letters, repeat=n)}
    assert {word for word in words if accepts(found, word)} == {w for w in language(path) if len(w) <= LENGTH_MAX}
    assert found.is_nullable is is_nullable(path)


def accepts(found: Automaton, word: Word) -> bool:
    states = {0}
    for letter in word:
        states = {
            after
            for state in states
            for link, after in found.edges[state]
            if (link.direction, str(link.predicate)) == letter
        }
    is_short = found.steps_max is None or len(word) <= found.steps_max
    return is_short and any(found.accepting[state] for state in states)


def language(path: Path) -> set[Word]:
    """The words of up to LENGTH_MAX letters, by the rules of regular expressions."""
    match path:
        case Term():
            return {(("out", str(path)),)}
        case Inverse(path=inner):
            turned = {"out": "in", "in": "out"}
            return {tuple((turned[way], name) for way, name in reversed(word)) for word in language(inner)}
        case PathSequence(first=first, second=second):
            return concatenated(language(first), language(second))
        case Alternative(first=first, second=second):
            return language(first) | language(second)
        case ZeroOrOne(path=inner):
            return {()} | language(inner)
        case Repeated(path=inner, low=low, high=high):
            exactly, words = {()}, set[Word]()
            for count in range((low + LENGTH_MAX if high is None else high) + 1):
                words |= exactly if count >= low else set()
                exactly = concatenated(exactly, language(inner))
            return words
        case OneOrMore(path=inner) | ZeroOrMore(path=inner):
            once = language(inner)
            words = once if isinstance(path, OneOrMore) else {()} | once
            while (longer := words | concatenated(words, once)) != words:
                words = longer
            return words
    raise AssertionError(path)


def concatenated(left: set[Word], right: set[Word]) -> set[Word]:
    return {one + other for one in left for other in right if len(one + other) <= LENGTH_MAX}


def test_links_of_negated_sets() -> None:
    found = automaton(path_of("!(<p>|^<q>)"))
    assert [(link.direction, link.predicate, link.excluded) for link in found.first_links()] == [
        ("out", None, (P,)),
        ("in", None, (Q,)),
    ]
