"""Promises of the sections of the SPARQL specification, one small case each, as data: tables by topic.

A table is a list of `Case`: the answer is written by hand from the specification, never taken from an engine.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIXES = """\
PREFIX : <http://e/>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One query. data : TriG. query : without prologue, if it needs no other than ours. answer : a truth; or rows, as
    Turtle lists of Turtle terms, `u:` where nothing is bound, in the order of `SELECT`; or, of a CONSTRUCT, Turtle.
    pyoxigraph : what it does instead; nothing where it agrees."""

    name: str
    data: str
    query: str
    answer: str | bool
    pyoxigraph: str = ""


@dataclass(frozen=True, slots=True)
class UpdateCase:
    """One request. before, after : the whole dataset as TriG. pyoxigraph : what it does instead."""

    name: str
    before: str
    update: str
    after: str
    pyoxigraph: str = ""
