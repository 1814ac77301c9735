"""One dataset in the three systems, and the verdict on one query.

Our answer is right if pyoxigraph gives the same. If it does not, the definitions (definitions.py) settle: our answer
must be theirs, and the disagreement must be of a class that is known and settled (faults.py). Everything else is open.
"""

from __future__ import annotations

import io
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import rdflib

import wukongs
from tests.fuzzing import answers
from tests.fuzzing.answers import Answer, Refused
from tests.fuzzing.definitions import TooBig, by_definition
from tests.fuzzing.faults import OXIGRAPH, RDFLIB, Case
from tests.fuzzing.graphs import Data, nquads
from tests.fuzzing.order import order_fault
from tests.fuzzing.queries import text_of
from tests.fuzzing.trees import Tree, operators
from tests.oracles.values import Undefined

EVERYTHING = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
TIMEOUT_S = 20
ROWS_MAX = 3000


@dataclass
class Tally:
    """Counts of the tried cases, by operator and outcome."""

    queries: int = 0
    not_empty: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    opened: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.queries += other.queries
        self.not_empty += other.not_empty
        self.operators.update(other.operators)
        self.verdicts.update(other.verdicts)
        self.opened += other.opened


@dataclass(frozen=True)
class Open:
    """A disagreement that nothing settles: why, and the answers."""

    reason: str

    @property
    def kind(self) -> str:
        """The reason in short, which stays the same when a case is made smaller."""
        return re.sub(r"column \d+|found '.*", "", self.reason.partition("\n")[0])


class World:
    """A dataset, held by an engine, by pyoxigraph (if plain) and, when it is asked, by rdflib."""

    def __init__(self, data: Data, plain: bool = True) -> None:
        self.data = data
        self.plain = plain
        self.engine = wukongs.Engine()
        self.engine.load(io.BytesIO(nquads(data)), format="nq")
        rows = self.engine.query(EVERYTHING).texts()
        self.quads = [(g or "", s or "", p or "", answers.canonical(o or "")) for g, s, p, o in rows]
        count = sum(len(set(triples)) for triples in data.values())
        assert len(self.quads) == count if plain else len(self.quads) <= count, f"loaded {len(self.quads)} of {count}"
        self.dataset: dict[str, set[tuple[str, str, str]]] = {"": set()}
        for graph, *triple in self.quads:
            self.dataset.setdefault(graph, set()).add((triple[0], triple[1], triple[2]))
        self.agreed: list[tuple[Tree, Answer]] = []
        self.store = answers.oxigraph_store(self.quads)

    def close(self) -> None:
        self.engine.close()

    @cached_property
    def library(self) -> rdflib.Dataset:
        return answers.rdflib_dataset(self.quads)

    def judge(self, tree: Tree, tally: Tally, rng: random.Random | None = None) -> Open | None:
        """Give a verdict on a query, and count it; rng: draws the sample that the others are asked about, too."""
        text = text_of(tree)
        tally.queries += 1
        tally.operators.update(operators(tree))
        try:
            result = self.engine.query(text, timeout_s=TIMEOUT_S)
        except (wukongs.QueryTimeout, wukongs.BudgetExceeded):
            tally.verdicts["too big for this"] += 1
            return None
        except Exception as error:
            return _opened(tally, f"the engine fails: {type(error).__name__}: {error}")
        if len(result) > ROWS_MAX:
            tally.verdicts["too big for this"] += 1
            return None
        ours = answers.of_engine(result)
        tally.not_empty += bool(ours)
        fault = order_fault(tree, result.texts(), result.vars)
        if fault:
            return _opened(tally, f"not in the order of the query\n{fault}")
        names = result.vars if result.kind == "select" else []
        found = self.compare(Case(tree, text, result.kind, ours, names, self.dataset), tally, rng)
        if isinstance(found, Open):
            return found
        if found.startswith("agreed"):
            self.agreed.append((tree, ours))
        return None

    def compare(self, case: Case, tally: Tally, rng: random.Random | None) -> str | Open:
        """Give a verdict on an answer of ours, and count it."""
        try:
            found = self._compare(case, tally, rng)
        except Undefined:  # more blank nodes that look alike than renamings should be tried
            found = "too big for this"
        if isinstance(found, Open):
            return _opened(tally, found.reason)
        tally.verdicts[found] += 1
        return found

    def _compare(self, case: Case, tally: Tally, rng: random.Random | None) -> str | Open:
        reduced = "SELECT REDUCED" in operators(case.tree)
        verdict = "agreed"
        if self.plain:
            try:
                theirs = answers.of_oxigraph(self.store, case.text, case.kind, case.names)
                if not answers.same(case.ours, theirs, reduced):
                    case.theirs = theirs
                    verdict = "differs"
            except Refused as error:
                case.refusal = str(error)
                verdict = "differs"
        else:
            verdict = "differs"
            case.refusal = "not asked: lexical forms"
        if verdict == "agreed" and not (rng and rng.random() < 0.05):
            return verdict
        try:
            settled = by_definition(case.text, case.kind, case.names, self.dataset)
        except TooBig:
            if verdict == "differs" and self.plain:
                return Open(f"too big to settle\nengine {answers.shown(case.ours)}\npyoxigraph {_other(case)}")
            return verdict if verdict == "agreed" else "too big for this"
        if not answers.same(case.ours, settled, reduced):
            return Open(
                f"the definitions say otherwise\nengine {answers.shown(case.ours)}\n"
                f"definitions {answers.shown(settled)}\n"
                f"pyoxigraph {_other(case) if verdict == 'differs' else 'as engine'}\nrdflib {self._rdflib(case)}"
            )
        if verdict == "differs" and self.plain:
            for fault in OXIGRAPH:
                if fault.explains(case):
                    verdict = f"pyoxigraph: {fault.name}"
                    break
            else:
                return Open(
                    f"pyoxigraph {'refuses' if case.refusal else 'says otherwise'}, the definitions do not\n"
                    f"engine {answers.shown(case.ours)}\n"
                    f"pyoxigraph {_other(case)}\nrdflib {self._rdflib(case)}"
                )
        if not self.plain:
            verdict = "agreed with the definitions (lexical forms)"
        if rng and rng.random() < 0.2:
            tally.verdicts[f"sample: {self._rdflib_verdict(case, reduced)}"] += 1
        return verdict

    def _rdflib(self, case: Case) -> str:
        try:
            theirs = answers.of_rdflib(self.library, case.text, case.kind, case.names)
        except Refused as error:
            return f"refuses: {error}"
        return "agrees with the engine" if answers.same(case.ours, theirs) else answers.shown(theirs)

    def _rdflib_verdict(self, case: Case, reduced: bool) -> str:
        try:
            theirs = answers.of_rdflib(self.library, case.text, case.kind, case.names)
        except Refused:
            return "rdflib fails"
        if answers.same(case.ours, theirs, reduced):
            return "rdflib agrees"
        for fault in RDFLIB:
            if fault.explains(case):
                return f"rdflib: {fault.name}"
        return "rdflib alone differs"


def _opened(tally: Tally, reason: str) -> Open:
    tally.verdicts["OPEN"] += 1
    return Open(reason)


def _other(case: Case) -> str:
    return case.refusal or answers.shown(case.theirs)
