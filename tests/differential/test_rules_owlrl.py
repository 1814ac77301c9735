"""The shipped rules "rdfs" and "owl-rl" against owlrl: a subset, of which nothing is missing but on purpose.

Triples that are left out are told by the predicates of LEFT_OUT. Literals are objects of two properties of their own,
which owl:sameAs does not reach: owlrl puts literals in the place of subjects while it concludes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

import owlrl
import pytest
import rdflib
from rdflib import OWL, RDF, RDFS, XSD, Namespace

import wukongs
from tests.fuzz import SEED, scaled

EX = Namespace("http://ex/")
CLASSES = [EX[f"C{at}"] for at in range(4)]
PROPERTIES = [EX[name] for name in "pqr"]
NODES = [EX[f"n{at}"] for at in range(5)]
MEASURE, SCALE = EX.measure, EX.scale
LISTED = (OWL.intersectionOf, OWL.unionOf, OWL.oneOf, OWL.propertyChainAxiom, OWL.hasKey)
SEMANTICS = {"rdfs": owlrl.RDFS_Semantics, "owl-rl": owlrl.OWLRL_Semantics}
SEEDS = range(SEED or 0, (SEED or 0) + scaled(40))
Triple = tuple[Any, Any, Any]


def is_literal_subject(triple: Triple, _: set[Triple]) -> bool:
    """RDF has no such triples."""
    return isinstance(triple[0], rdflib.Literal)


def is_reflexive(triple: Triple, _: set[Triple]) -> bool:
    """eq-ref, scm-cls, scm-op, scm-dp, rdfs6, rdfs10: a name is as itself."""
    same = (OWL.sameAs, OWL.equivalentClass, OWL.equivalentProperty, RDFS.subClassOf, RDFS.subPropertyOf)
    return triple[0] == triple[2] and triple[1] in same


def is_about_everything(triple: Triple, _: set[Triple]) -> bool:
    """rdfs4a, rdfs4b, rdfs8, scm-cls: what holds of each resource, and of each class."""
    return triple[2] in (RDFS.Resource, OWL.Thing) or triple[0] == OWL.Nothing


def tells_the_kind_of_a_name(triple: Triple, _: set[Triple]) -> bool:
    """rdf1, rdfs12, rdfs13, dt-type1, and the domains and ranges of the vocabulary itself."""
    kinds = (RDF.Property, RDFS.Class, RDFS.Datatype, RDFS.ContainerMembershipProperty, OWL.Class)
    return triple[1] == RDF.type and triple[2] in kinds


def is_about_the_vocabulary(triple: Triple, _: set[Triple]) -> bool:
    """Axiomatic triples, and what follows about rdf:, rdfs:, owl: and xsd: names."""
    return isinstance(triple[0], rdflib.URIRef) and triple[0].startswith("http://www.w3.org/")


def needs_a_list(triple: Triple, without_lists: set[Triple]) -> bool:
    """prp-spo2, prp-key, cls-int1, cls-int2, cls-uni, cls-oo, scm-int, scm-uni and what follows."""
    return triple not in without_lists


def reports_a_contradiction(triple: Triple, _: set[Triple]) -> bool:
    """owlrl describes what contradicts itself by blank nodes; the data has none."""
    return isinstance(triple[0], rdflib.BNode)


LEFT_OUT: dict[str, tuple[Callable[[Triple, set[Triple]], bool], ...]] = {
    "rdfs": (
        is_literal_subject,
        is_reflexive,
        is_about_everything,
        tells_the_kind_of_a_name,
        is_about_the_vocabulary,
    ),
    "owl-rl": (
        is_literal_subject,
        is_reflexive,
        is_about_everything,
        tells_the_kind_of_a_name,
        is_about_the_vocabulary,
        needs_a_list,
        reports_a_contradiction,
    ),
}


# --- random data ------------------------------------------------------------------------------------------------------


def rdfs_axiom(random: Random) -> list[Triple]:
    one, other = random.sample(CLASSES, 2)
    p, q = random.sample(PROPERTIES, 2)
    choices = [
        (one, RDFS.subClassOf, other),
        (one, RDFS.subClassOf, other),
        (p, RDFS.subPropertyOf, q),
        (p, RDFS.domain, one),
        (p, RDFS.range, one),
        (MEASURE, RDFS.domain, one),
        (MEASURE, RDFS.subPropertyOf, SCALE),
    ]
    return [random.choice(choices)]


def owl_axiom(random: Random) -> list[Triple]:
    one, other = random.sample(CLASSES, 2)
    p, q = random.sample(PROPERTIES, 2)
    restriction = random.choice([EX.R0, EX.R1])
    kinds = (OWL.SymmetricProperty, OWL.TransitiveProperty, OWL.FunctionalProperty, OWL.InverseFunctionalProperty)
    choices = [
        [(one, OWL.equivalentClass, other)],
        [(p, OWL.equivalentProperty, q)],
        [(p, RDF.type, random.choice(kinds))],
        [(p, OWL.inverseOf, q)],
        [(random.choice(NODES), OWL.sameAs, random.choice(NODES))],
        _restriction(restriction, p, OWL.someValuesFrom, one),
        _restriction(EX.R0, p, OWL.someValuesFrom, OWL.Thing),  # two of them are equal, as owl:Thing is reflexive
        _restriction(restriction, p, OWL.allValuesFrom, one),
        _restriction(restriction, p, OWL.hasValue, random.choice(NODES)),
        _restriction(restriction, p, OWL.maxCardinality, rdflib.Literal(1, datatype=XSD.nonNegativeInteger)),
        [(one, RDFS.subClassOf, restriction)],
        [(restriction, RDFS.subClassOf, one)],
    ]
    return random.choice(choices)


def _restriction(name: Any, on: Any, kind: Any, filler: Any) -> list[Triple]:
    return [(name, OWL.onProperty, on), (name, kind, filler)]


def list_axiom(random: Random) -> list[Triple]:
    kind = random.choice(LISTED)
    if kind == OWL.propertyChainAxiom:
        subject, members = random.choice(PROPERTIES), random.sample(PROPERTIES, 2)
    elif kind == OWL.hasKey:
        subject, members = random.choice(CLASSES), random.sample(PROPERTIES, 1)
    else:
        subject, *members = random.sample(CLASSES if kind != OWL.oneOf else [random.choice(CLASSES), *NODES[:2]], 3)
    cells = [EX[f"list-{kind.fragment}-{at}"] for at in range(len(members))]
    found: list[Triple] = [(subject, kind, cells[0])]
    for cell, member, rest in zip(cells, members, [*cells[1:], RDF.nil], strict=True):
        found += [(cell, RDF.first, member), (cell, RDF.rest, rest)]
    return found


def fact(random: Random) -> Triple:
    kind = random.random()
    if kind < 0.3:
        return random.choice(NODES), RDF.type, random.choice([*CLASSES, EX.R0])
    if kind < 0.4:
        return random.choice(NODES), random.choice([MEASURE, SCALE]), rdflib.Literal(random.randrange(3))
    return random.choice(NODES), random.choice(PROPERTIES), random.choice(NODES)


def data_of(name: str, seed: int) -> tuple[set[Triple], set[Triple]]:
    """Return random triples, and those among them that are not of lists."""
    random = Random(seed)
    plain = {fact(random) for _ in range(random.randint(3, 10))}
    for _ in range(random.randint(3, 7)):
        plain.update(rdfs_axiom(random) if name == "rdfs" or random.random() < 0.4 else owl_axiom(random))
    lists = list_axiom(random) if name == "owl-rl" and random.random() < 0.3 else []
    return plain | set(lists), plain


# --- closures ---------------------------------------------------------------------------------------------------------


def by_owlrl(name: str, triples: set[Triple], axiomatic: bool) -> set[Triple]:
    graph = rdflib.Graph()
    for triple in triples:
        graph.add(triple)
    owlrl.DeductiveClosure(SEMANTICS[name], axiomatic_triples=axiomatic, datatype_axioms=False).expand(graph)
    return set(graph)


def by_wukongs(name: str, triples: set[Triple]) -> set[Triple]:
    text = "".join(f"{' '.join(term.n3() for term in triple)} .\n" for triple in sorted(triples))
    with wukongs.Engine(rules=name) as engine:
        engine.load(io.BytesIO(text.encode()), format="nt")
        return set(engine.query("SELECT ?s ?p ?o { ?s ?p ?o }"))


def missing(name: str, found: set[Triple], expected: set[Triple], without_lists: set[Triple]) -> set[Triple]:
    """Those triples that are expected, not found, and not left out on purpose."""
    return {
        triple
        for triple in expected - found
        if not any(is_left_out(triple, without_lists) for is_left_out in LEFT_OUT[name])
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SEMANTICS)
def test_shipped_rules_conclude_what_owlrl_does(name: str, seed: int) -> None:
    triples, plain = data_of(name, seed)
    found = by_wukongs(name, triples)
    expected = by_owlrl(name, triples, axiomatic=False)
    without_lists = expected if plain == triples else by_owlrl(name, plain, axiomatic=False)
    assert not missing(name, found, expected, without_lists)
    more = found - expected
    assert not more or not more - by_owlrl(name, triples, axiomatic=True)


# --- the list of what is left out, itself -----------------------------------------------------------------------------


@lru_cache
def closures(name: str) -> list[tuple[set[Triple], set[Triple], set[Triple]]]:
    """Data, its closure, and the closure without lists, of some seeds."""
    found = []
    for seed in range(12):
        triples, plain = data_of(name, seed)
        found.append((triples, by_owlrl(name, triples, False), by_owlrl(name, plain, False)))
    return found


@pytest.mark.parametrize("name", SEMANTICS)
def test_much_is_not_left_out(name: str) -> None:
    """Without any rule, something is missing for nearly all data."""
    assert sum(bool(missing(name, *one)) for one in closures(name)) >= 10


@pytest.mark.parametrize(
    ("name", "is_left_out"), [(name, one) for name, predicates in LEFT_OUT.items() for one in predicates]
)
def test_each_reason_is_met(name: str, is_left_out: Callable[[Triple, set[Triple]], bool]) -> None:
    """A predicate that holds of nothing that owlrl concludes would only hide mistakes."""
    if is_left_out is reports_a_contradiction:
        triples = {(NODES[0], OWL.differentFrom, NODES[1]), (NODES[0], OWL.sameAs, NODES[1])}
        expected = by_owlrl(name, triples, False)
        assert any(is_left_out(triple, expected) for triple in expected - triples)
    elif is_left_out is tells_the_kind_of_a_name and name == "owl-rl":
        assert any(is_left_out(triple, set()) for triple in by_owlrl(name, set(), False))
    elif is_left_out is needs_a_list:
        random = Random(1)
        found = 0
        for seed in range(20):
            plain = data_of(name, seed)[1]
            expected, without = by_owlrl(name, plain | set(list_axiom(random)), False), by_owlrl(name, plain, False)
            found += any(is_left_out(triple, without) for triple in expected - plain)
        assert found
    else:
        assert any(is_left_out(one, without) for data, expected, without in closures(name) for one in expected - data)
