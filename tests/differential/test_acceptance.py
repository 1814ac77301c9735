"""Our parser and pyoxigraph's take the same texts, of texts with a token or two changed.

The two grammars are written independently, so that each disagreement is settled by SPARQL 1.1 (section 19.8):

* `SELECT ?x ?x`: the grammar allows it, and no note forbids it (only a name after AS must be new); pyoxigraph does.
* `TRUE`, `False`: keywords ignore case (all but `a`); pyoxigraph knows these two in lower case only.
* An aggregate in GROUP BY: aggregates belong to SELECT, HAVING and ORDER BY (section 11); pyoxigraph takes it.
* A literal as subject of DELETE DATA: the grammar has it (VarOrTerm), and no tuple matches it; pyoxigraph refuses it.
* `+ 5` as an object: a sign belongs to the token of the number (INTEGER_POSITIVE); pyoxigraph lets a blank between.
* `CONCAT()`: an ExpressionList may be empty (NIL); pyoxigraph refuses it.
* Texts refused here as not supported, and errors that pyoxigraph only finds while it evaluates, are not compared.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import pyoxigraph
import pytest

from tests.fuzz import scaled
from wukongs.csparql.parser import parse_query
from wukongs.csparql.parser_update import parse_update
from wukongs.csparql.tokens import tokenize
from wukongs.errors import QuerySyntaxError, UnsupportedFeatureError

SUITE = Path(__file__).resolve().parents[3] / "shared" / "w3c"
BASE = "http://example.org/"
OWN = (
    "SELECT ?x (COUNT(DISTINCT ?y) + 1 AS ?n) WHERE { ?x a <T> ; <p> ?y, [ <q> 'b'@en ] } GROUP BY ?x HAVING (?n > 3)",
    "ASK { ?s <p> ?o . OPTIONAL { ?o <q> 1.5 FILTER(?o != 2 && !BOUND(?s)) } { ?s ?p 1 } UNION { BIND(1 AS ?z) } }",
    "CONSTRUCT { ?s <p> (1 2) } FROM <g> WHERE { GRAPH ?g { ?s <p>/<q>*|^<r> ?o } } ORDER BY DESC(?s) LIMIT 3 OFFSET 1",
    "INSERT DATA { <s> <p> 'o' . GRAPH <g> { <s> <p> 1.5e3 } } ; CLEAR SILENT NAMED ; COPY <g> TO DEFAULT",
    "WITH <g> DELETE { ?s ?p ?o } INSERT { ?s ?p 2 } USING <h> WHERE { ?s ?p ?o FILTER(?o < 2) } ; DROP ALL",
)
SETTLED = re.compile(r"[+-]\s+[+-]?\s*[0-9.]|(CONCAT|COALESCE)\s*\(\s*\)", re.IGNORECASE)
MUTANTS = scaled(400)


@cache
def corpus() -> list[str]:
    """The W3C's right texts of SPARQL 1.1 and before, if they are beside the project, and our own."""
    if not (SUITE / "tests.json").is_file():
        return list(OWN)
    tests = json.loads((SUITE / "tests.json").read_text(encoding="utf-8"))
    right = [test["text"] for test in tests if test["suite"] in ("10", "11") and "Negative" not in test["kind"]]
    return [*OWN, *(Path(SUITE, name).read_bytes().decode("utf-8") for name in dict.fromkeys(right))]


def mutated(rng: random.Random) -> str:
    text = rng.choice(corpus())
    ends = [0, *(token.end for token in tokenize(text))]
    parts = [text[start:end] for start, end in pairwise(ends)]
    for _ in range(rng.randint(1, 2)):
        at, other = rng.randrange(len(parts)), rng.randrange(len(parts))
        change = rng.randrange(4)
        if change == 0:
            parts[at] = " "
        elif change == 1:
            parts.insert(at, parts[at])
        elif change == 2:
            parts[at], parts[other] = parts[other], parts[at]
        else:
            parts.insert(at, " " + parts[other])
    return " ".join(parts)


def accepted_here(text: str, parse: Callable[..., object]) -> bool | None:
    """Whether a text parses; None if it holds something that is not supported."""
    try:
        parse(text, BASE)
    except UnsupportedFeatureError:
        return None
    except QuerySyntaxError as error:
        return None if error.expected.startswith("no aggregate here") else False
    return True


def is_right_all_the_same(text: str, is_update: bool) -> bool:
    """Whether a text has what pyoxigraph refuses and the grammar allows: see above."""
    if is_update and any(token.kind in ("string", "integer", "decimal", "double") for token in tokenize(text)):
        return True
    names: list[str] | None = None
    for token in tokenize(text):
        if token.kind in ("TRUE", "FALSE") and token.text not in ("true", "false"):
            return True
        if token.kind == "SELECT":
            names = []
        elif token.kind in ("{", "WHERE", "FROM", "end"):
            names = None
        elif token.kind == "var" and names is not None:
            if token.text in names:
                return True
            names.append(token.text)
    return False


def accepted_there(text: str, is_update: bool) -> bool | None:
    """Whether pyoxigraph parses a text, asked of an empty store; None if it gives up for another reason."""
    store = pyoxigraph.Store()
    try:
        if is_update:
            store.update(text, base_iri=BASE)
        else:
            store.query(text, base_iri=BASE)
    except SyntaxError:
        return False
    except (OSError, RuntimeError, ValueError):
        return None
    return True


@pytest.mark.parametrize("seed", range(4))
def test_both_parsers_take_the_same_texts(seed: int) -> None:
    rng = random.Random(seed)
    compared = 0
    for _ in range(MUTANTS // 4):
        text = mutated(rng)
        if SETTLED.search(text) or "SERVICE" in text.upper() or "LOAD" in text.upper():
            continue  # the last two pyoxigraph would go and fetch
        for parse, is_update in ((parse_query, False), (parse_update, True)):
            ours, theirs = accepted_here(text, parse), accepted_there(text, is_update)
            if ours is None or theirs is None or (ours and not theirs and is_right_all_the_same(text, is_update)):
                continue
            compared += 1
            assert ours == theirs, f"we {'take' if ours else 'refuse'}, pyoxigraph does not:\n{text}"
    assert compared > MUTANTS // 8
