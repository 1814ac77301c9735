"""RML mapping files (Turtle) as mappings, in the old vocabulary (with R2RML's) and the one of 2024.

Read is the core: logical sources of CSV and JSON, templates, references, constants, classes, term types, datatypes,
languages, graphs and joins with other files. Functions, queries and everything else is refused by name: nothing is left
out in silence. RML has no event time, so the source that names the file says when a record happens.

Source: RML-Core and RML-IO-Registry (https://w3id.org/rml/core/spec, https://w3id.org/rml/io-registry); of the old
vocabulary https://rml.io/specs/rml/ and https://www.w3.org/TR/r2rml/ (sections 7 to 11 for what terms become).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pyoxigraph as ox

from wukongs.adapters.mapping.json_paths import Step, json_path, parse_json_path
from wukongs.adapters.mapping.mapping import FILE, ITERATION, ROW, Join, Mapping, TripleMap
from wukongs.adapters.mapping.templates import (
    NOT_OF_IRIS,
    Cell,
    Kind,
    Template,
    TermMap,
    constant_iri,
    encoded_cell,
)
from wukongs.adapters.mapping.terms import LANGUAGE_TAG
from wukongs.errors import DataError, SettingsError

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_MODERN = "http://w3id.org/rml/"
_VOCABULARIES = ("http://semweb.mmlab.be/ns/rml#", "http://www.w3.org/ns/r2rml#", _MODERN)
_RELATIVE = "rml-relative:///"
"""The beginning of relative IRIs of a mapping file once it is parsed."""
_TERMS = ("template", "reference", "constant")
_OF_TERM = (*_TERMS, "termType", "datatype", "datatypeMap", "language", "languageMap", "class", "graph", "graphMap")
_KINDS: dict[str, Kind] = {
    "IRI": "iri",
    "URI": "iri",
    "UnsafeIRI": "iri",
    "UnsafeURI": "iri",
    "BlankNode": "blank",
    "Literal": "literal",
}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_UNREGISTERED = re.compile(r"[A-Za-z]{4,8}(-|$)")
"""Language tags whose language has four letters or more: well-formed, but none is registered (RFC 5646, 2.2.1)."""
_ENCODINGS = ("utf8", "utf-8")
_COMPRESSIONS = ("none", "gzip")

Node = ox.NamedNode | ox.BlankNode
Term = Node | ox.Literal | ox.Triple
Place = Literal["subject", "predicate", "object", "graph", "datatype"]
"""Where a term stands."""


def load_rml(path: str, data: tuple[str, ...], base: str | None = None, beside: Sequence[str] = ()) -> Mapping:
    """Return the mapping of the triples maps whose logical source is one of the data files, or of all, if they have one
    logical source. It has no time.

    base: stands before relative IRIs, of triples maps that have no rml:baseIRI.
    beside: other files of data, which joins may name.

    Raises: SettingsError (no Turtle; a feature that is not read, by the name of its triples map)."""
    try:
        quads = list(ox.parse(Path(path).read_bytes(), format=ox.RdfFormat.TURTLE, base_iri=_RELATIVE))
    except (OSError, SyntaxError, ValueError) as error:
        raise SettingsError(f"{path}: expected an RML mapping in Turtle, found an error: {error}") from None
    graph = _Graph(path, quads)
    maps = [node for node in graph.nodes() if graph.values(node, "logicalSource")]
    without = [node for node in graph.nodes() if node not in maps and graph.values(node, "predicateObjectMap")]
    if without:
        raise graph.error(_name(without[0]), "expected a logical source, found none: triples are made of records")
    if not maps:
        raise SettingsError(f"{path}: expected a triples map with a logical source, found none")
    sources = {node: _LogicalSource(graph, node) for node in maps}
    names = {Path(one).name.removesuffix(".gz") for one in data}
    distinct = {source.file for source in sources.values()}
    chosen = [node for node in maps if len(distinct) == 1 or Path(sources[node].file).name in names]
    if not chosen:
        expected = " or ".join(sorted(names))
        raise SettingsError(f"{path}: expected a logical source called {expected}, found {', '.join(sorted(distinct))}")
    places = _Files(path, (*data, *beside))
    triples = [triple for node in chosen for triple in _TriplesMap(graph, node, sources, base, places).triples()]
    if not triples:
        raise SettingsError(f"{path}: expected classes or predicate-object maps, found none")
    iterators = {sources[node].iterator for node in chosen}
    empty = dict.fromkeys(("", *(text for node in chosen for text in sources[node].null)))
    return Mapping(
        file=path,
        triples=tuple(dict.fromkeys(triples)),
        empty=tuple(empty),
        records=(iterators.pop() or "$") if len(iterators) == 1 else "$",
        notes=_notes(path, [sources[node] for node in chosen], triples),
    )


def _notes(path: str, sources: list[_LogicalSource], triples: list[TripleMap]) -> tuple[str, ...]:
    """Return what a user of the old vocabulary should know: numbers of JSON have no datatype by themselves there."""
    if not any(source.is_json and not source.is_modern for source in sources):
        return ()
    plain = dict.fromkeys(
        triple.object.template.text
        for triple in triples
        if isinstance(triple.object, TermMap)
        and triple.object.kind == "literal"
        and len(triple.object.template.names) == 1
        and isinstance(triple.object.template.parts[0], Cell)
        and not triple.object.is_natural
        and triple.object.datatype is None
        and triple.object.language is None
    )
    if not plain:
        return ()
    return (
        f"{path}: in the old vocabulary values of JSON without an rr:datatype become plain texts, numbers too: SUM, "
        "AVG and < over them have no result. Give a datatype, or use the vocabulary of 2024. "
        f"They are {', '.join(plain)}",
    )


class _Graph:
    """The triples of a mapping file, by subject and by the local names of the vocabularies."""

    def __init__(self, path: str, quads: list[ox.Quad]) -> None:
        self.path = path
        self._known: dict[Node, dict[str, list[Term]]] = {}
        self._modern: set[tuple[Node, str]] = set()
        for quad in quads:
            name = self.local(quad.predicate)
            if name is None and quad.predicate.value != RDF_TYPE and isinstance(quad.subject, Node):
                name = f"<{quad.predicate.value}>"
            if name is not None and isinstance(quad.subject, Node):
                self._known.setdefault(quad.subject, {}).setdefault(name, []).append(quad.object)
                if quad.predicate.value.startswith(_MODERN):
                    self._modern.add((quad.subject, name))

    @staticmethod
    def local(term: Term) -> str | None:
        """Return the name of a term of one of the vocabularies."""
        if isinstance(term, ox.NamedNode):
            for vocabulary in _VOCABULARIES:
                if term.value.startswith(vocabulary):
                    return term.value.removeprefix(vocabulary)
        return None

    def nodes(self) -> list[Node]:
        return list(self._known)

    def is_modern(self, node: Node, name: str) -> bool:
        """Tell whether a property is that of the vocabulary of 2024."""
        return (node, name) in self._modern

    def values(self, node: Term, name: str) -> list[Term]:
        return self._known.get(node, {}).get(name, []) if isinstance(node, Node) else []

    def value(self, node: Term, name: str, place: str) -> Term | None:
        """Return the one value of a property, None without it."""
        found = self.values(node, name)
        if len(found) > 1:
            raise self.error(place, f"expected one {name}, found {len(found)}")
        return found[0] if found else None

    def text(self, node: Term, name: str, place: str) -> str | None:
        found = self.value(node, name, place)
        if found is None:
            return None
        if not isinstance(found, ox.Literal | ox.NamedNode):
            raise self.error(place, f"expected a text as {name}, found {found}")
        return found.value

    def check(self, node: Term, known: tuple[str, ...], place: str) -> None:
        """Refuse properties that are not read."""
        for name in self._known.get(node, {}) if isinstance(node, Node) else ():
            if name not in known:
                raise self.error(place, f"{name} is not read: expected one of {', '.join(known)}")

    def error(self, place: str, text: str) -> SettingsError:
        return SettingsError(f"{self.path}, {place}: {text}")


def _name(node: Node) -> str:
    return (
        f"<{node.value.removeprefix(_RELATIVE)}>" if isinstance(node, ox.NamedNode) else "a triples map without a name"
    )


class _Files:
    """Where the files are that logical sources name: among the given ones, beside the mapping, or where we are."""

    def __init__(self, mapping: str, given: Sequence[str]) -> None:
        self._folder = Path(mapping).parent
        self._given = {Path(one).name.removesuffix(".gz"): one for one in given}

    def path(self, name: str) -> str:
        given = self._given.get(Path(name).name.removesuffix(".gz"))
        if given is not None:
            return given
        return str(self._folder / name if (self._folder / name).exists() or not Path(name).exists() else Path(name))


class _LogicalSource:
    """file: as it is named; is_json: whether references are JSON paths; iterator: the JSON path of its iterations ("":
    its records); null: texts that stand for no value; is_modern: whether it is of the vocabulary of 2024."""

    def __init__(self, graph: _Graph, triples_map: Node) -> None:
        self._graph, self._place = graph, _name(triples_map)
        place = self._place
        node = graph.value(triples_map, "logicalSource", place)
        assert node is not None, triples_map
        graph.check(node, ("source", "referenceFormulation", "iterator"), place)
        self.is_modern = graph.is_modern(triples_map, "logicalSource")
        source = graph.value(node, "source", place)
        self.null: list[str] = []
        if isinstance(source, Node) and (path := graph.text(source, "path", place)) is not None:  # a file of RML 2024
            graph.check(source, ("path", "root", "encoding", "compression", "null"), place)
            self._check_way(source, "encoding", _ENCODINGS)
            self._check_way(source, "compression", _COMPRESSIONS)
            self.null = [one.value for one in graph.values(source, "null") if isinstance(one, ox.Literal)]
            self.file = path
        elif isinstance(source, ox.Literal):
            self.file = source.value
        else:
            raise graph.error(place, f"expected the name of a file as the logical source, found {source}")
        formulation = graph.text(node, "referenceFormulation", place) or "CSV"
        kind = re.split(r"[#/]", formulation)[-1]
        if kind not in ("CSV", "JSONPath"):
            raise graph.error(place, f"{kind} is not read: expected CSV or JSONPath")
        self.is_json = kind == "JSONPath"
        self._steps: tuple[Step, ...] = ()
        if self.is_json:
            self._steps = self._path(graph.text(node, "iterator", place) or "$")
        self.iterator = json_path(self._steps) if None in self._steps else ""
        self.key = (self.file, kind, self._steps)

    def _check_way(self, source: Node, name: str, known: tuple[str, ...]) -> None:
        found = self._graph.value(source, name, self._place)
        text = None if found is None else (self._graph.local(found) or str(found))
        if text is not None and text.lower() not in known:
            raise self._graph.error(self._place, f"{name} {text} is not read: expected one of {', '.join(known)}")

    def _path(self, text: str) -> tuple[Step, ...]:
        try:
            return parse_json_path(text)
        except DataError as error:
            raise self._graph.error(self._place, error.message) from None

    def cell(self, reference: str) -> str:
        """Return the name of a cell."""
        return json_path((*self._steps, *self._path(reference))) if self.is_json else reference


class _TriplesMap:
    def __init__(
        self, graph: _Graph, node: Node, sources: dict[Node, _LogicalSource], base: str | None, files: _Files
    ) -> None:
        self._graph, self._node, self._place = graph, node, _name(node)
        self._sources, self._source, self._files = sources, sources[node], files
        known = ("logicalSource", "subjectMap", "subject", "predicateObjectMap", "baseIRI")
        graph.check(node, known, self._place)
        self._given_base = base
        own = graph.value(node, "baseIRI", self._place)
        if own is not None and not isinstance(own, ox.NamedNode | ox.Literal):
            raise graph.error(self._place, f"expected an IRI as baseIRI, found {own}")
        self._base = base if own is None else own.value
        if self._base is not None and (not _SCHEME.match(self._base) or NOT_OF_IRIS.search(self._base)):
            raise graph.error(self._place, f"expected an absolute IRI as the base, found {self._base!r}")

    def triples(self) -> list[TripleMap]:
        graph, place = self._graph, self._place
        subject_node = graph.value(self._node, "subjectMap", place)
        subject = self.subject()
        graphs = [] if subject_node is None else self._graphs(subject_node)
        classes = [] if subject_node is None else graph.values(subject_node, "class")
        found = self._in_graphs(subject, constant_iri(RDF_TYPE), [self._class(one) for one in classes], graphs)
        for node in graph.values(self._node, "predicateObjectMap"):
            graph.check(node, ("predicate", "predicateMap", "object", "objectMap", "graph", "graphMap"), place)
            own = [*graphs, *self._graphs(node)]
            predicates, objects = self._terms(node, "predicate"), self._objects(node)
            for name, terms in (("predicate", predicates), ("object", objects)):
                if not terms:
                    raise graph.error(place, f"expected one {name} or more in each predicate-object map, found none")
            for predicate in predicates:
                if predicate.kind != "iri":
                    raise graph.error(place, "expected an IRI as predicate")
                found += self._in_graphs(subject, predicate, objects, own)
        return found

    def subject(self) -> TermMap:
        subjects = self._terms(self._node, "subject")
        if len(subjects) != 1:
            raise self._graph.error(self._place, f"expected one subject map, found {len(subjects)}")
        if subjects[0].kind == "literal":
            raise self._graph.error(self._place, "expected an IRI or a blank node as subject, found a literal")
        return subjects[0]

    def _in_graphs(
        self, subject: TermMap, predicate: TermMap, objects: Sequence[TermMap | Join], graphs: list[TermMap]
    ) -> list[TripleMap]:
        into: list[TermMap | None] = [*graphs] or [None]
        iterator = self._source.iterator
        return [
            TripleMap(subject, predicate, object_, graph, iterator=iterator) for object_ in objects for graph in into
        ]

    def _graphs(self, node: Term) -> list[TermMap]:
        found = self._terms(node, "graph")
        if any(one.kind == "literal" for one in found):
            raise self._graph.error(self._place, "expected an IRI or a blank node as graph, found a literal")
        return list(dict.fromkeys(found))

    def _class(self, term: Term) -> TermMap:
        found = self._constant(term)
        if found.kind != "iri":
            raise self._graph.error(self._place, f"expected an IRI as class, found {term}")
        return found

    def _terms(self, node: Term, place: Place) -> list[TermMap]:
        """Return the terms of a property and of its shortcut for constants."""
        constants = [self._constant(one) for one in self._graph.values(node, place)]
        return constants + [self._term(one, place) for one in self._graph.values(node, place + "Map")]

    def _objects(self, node: Term) -> list[TermMap | Join]:
        found: list[TermMap | Join] = [self._constant(one) for one in self._graph.values(node, "object")]
        for one in self._graph.values(node, "objectMap"):
            is_reference = self._graph.values(one, "parentTriplesMap") or self._graph.values(one, "joinCondition")
            found.append(self._parent(one) if is_reference else self._term(one, "object"))
        return found

    def _parent(self, node: Term) -> TermMap | Join:
        """Return the subject of another triples map: of the same iteration, or of the records that a join finds."""
        graph, place = self._graph, self._place
        graph.check(node, ("parentTriplesMap", "joinCondition"), place)
        parent = graph.value(node, "parentTriplesMap", place)
        if not isinstance(parent, Node) or parent not in self._sources:
            shown = _name(parent) if isinstance(parent, ox.NamedNode) else parent
            raise graph.error(place, f"expected a triples map of a logical source as parentTriplesMap, found {shown}")
        theirs = _TriplesMap(graph, parent, self._sources, self._given_base, self._files)
        conditions = graph.values(node, "joinCondition")
        if not conditions:
            if theirs._source.key != self._source.key:
                raise graph.error(place, f"expected a joinCondition, since {_name(parent)} has another logical source")
            return theirs.subject()
        subject = theirs.subject()
        if ITERATION in subject.names:
            raise graph.error(place, f"a join needs the subjects of {_name(parent)}, blank nodes of no expression")
        return Join(
            file=self._files.path(theirs._source.file),
            kind="json" if theirs._source.is_json else "csv",
            iterator=theirs._source.iterator,
            subject=subject,
            conditions=tuple((self._side(one, "child"), theirs._side(one, "parent")) for one in conditions),
        )

    def _side(self, condition: Term, name: Literal["child", "parent"]) -> TermMap:
        """Return one side of a join condition, as a text."""
        graph, place = self._graph, self._place
        graph.check(condition, ("child", "parent", "childMap", "parentMap"), place)
        reference, node = graph.text(condition, name, place), graph.value(condition, name + "Map", place)
        if (reference is None) == (node is None):
            raise graph.error(place, f"expected either {name} or {name}Map in a joinCondition")
        if reference is not None:
            return TermMap("literal", self._reference(reference))
        assert node is not None, condition
        graph.check(node, _TERMS, place)
        return TermMap("literal", self._expression(node))

    def _constant(self, term: Term) -> TermMap:
        if isinstance(term, ox.NamedNode):
            if not term.value.startswith(_RELATIVE):
                return constant_iri(term.value)
            if self._base is None:
                raise self._graph.error(
                    self._place, f"expected an absolute IRI, found <{term.value.removeprefix(_RELATIVE)}> and no base"
                )
            return constant_iri(self._base + term.value.removeprefix(_RELATIVE))
        if isinstance(term, ox.Literal):
            datatype = None if term.language or term.datatype.value.endswith("#string") else term.datatype.value
            language = Template(term.language, (term.language,)) if term.language else None
            return TermMap(
                "literal",
                Template(term.value, (term.value,) if term.value else ()),
                None if datatype is None else constant_iri(datatype),
                language,
            )
        raise self._graph.error(self._place, f"expected an IRI or a literal as constant, found {term}")

    def _given(self, node: Term) -> list[str]:
        given = [name for name in _TERMS if self._graph.values(node, name)]
        if len(given) > 1:
            raise self._graph.error(
                self._place, f"expected one of {', '.join(_TERMS)} in a term map, found {' and '.join(given)}"
            )
        return given

    def _term(self, node: Term, at: Place) -> TermMap:
        graph, place = self._graph, self._place
        graph.check(node, _OF_TERM, place)
        given = self._given(node)
        if given == ["constant"]:
            constant = graph.value(node, "constant", place)
            assert constant is not None, node
            return self._constant(constant)
        term_type = graph.value(node, "termType", place)
        name = None if term_type is None else graph.local(term_type) or str(term_type)
        if name is not None and name not in _KINDS:
            *others, last = _KINDS
            raise graph.error(place, f"expected {', '.join(others)} or {last} as termType, found {name}")
        if not given:
            if name == "BlankNode":
                return self._fresh(node)
            raise graph.error(place, f"expected one of {', '.join(_TERMS)} in a term map, found none")
        datatype, language = self._datatype(node), self._language(node)
        if datatype and language:
            raise graph.error(place, "expected a datatype or a language, found both")
        is_literal = at == "object" and (given == ["reference"] or bool(datatype or language))
        kind = _KINDS[name] if name is not None else "literal" if is_literal else "iri"
        if kind != "literal" and (datatype or language):
            raise graph.error(place, "expected a datatype or a language of a literal, found one of another term")
        text = graph.text(node, given[0], place)
        assert text is not None, node
        is_raw = kind == "iri" and (given == ["reference"] or name in ("UnsafeIRI", "UnsafeURI"))
        template = self._reference(text, is_raw) if given == ["reference"] else self._template(text, is_raw)
        if kind == "blank":
            template = _label(template)
        is_natural = kind == "literal" and given == ["reference"] and not datatype and not language
        term = TermMap(
            kind,
            template,
            datatype,
            language,
            is_natural=is_natural and self._source.is_json and self._source.is_modern,
            base=self._base if kind == "iri" else None,
            is_uri=name in ("URI", "UnsafeURI"),
        )
        return self._checked_iri(term) if kind == "iri" else term

    def _fresh(self, node: Term) -> TermMap:
        """Return the map of a blank node of no expression: another one in each iteration."""
        number = self._graph.nodes().index(node) if isinstance(node, Node) else 0
        cells = (Cell(FILE), "x", Cell(ROW), "x", Cell(ITERATION))
        return TermMap("blank", Template("a blank node", (f"n{number}x", *cells)))

    def _reference(self, text: str, is_raw: bool = False) -> Template:
        return Template(text, (Cell(self._source.cell(text), is_raw),))

    def _template(self, text: str, is_raw: bool = False) -> Template:
        """Return a template. Braces and backslashes that are no references are escaped by a backslash."""
        parts: list[str | Cell] = []
        constant, name = "", None  # what was read of a constant, of a reference
        signs = iter(text)
        for sign in signs:
            escaped = sign == "\\"
            if escaped:
                sign = next(signs, "")
                if sign not in ("\\", "{", "}"):
                    raise self._graph.error(
                        self._place, f"expected \\\\, \\{{ or \\}} behind a backslash, found {sign!r} in {text!r}"
                    )
            if escaped or sign not in "{}":
                constant, name = (constant + sign, None) if name is None else (constant, name + sign)
            elif (sign == "{") == (name is None):
                if name is not None and not name:
                    raise self._graph.error(self._place, f"expected a reference in {{}}, found nothing in {text!r}")
                if constant:
                    parts.append(constant)
                if name is not None:
                    parts.append(Cell(self._source.cell(name), is_raw))
                constant, name = "", "" if name is None else None
            else:
                raise self._graph.error(self._place, f"expected a template, found a single brace in {text!r}")
        if name is not None:
            raise self._graph.error(self._place, f"expected a template, found a single brace in {text!r}")
        return Template(text, (*parts, constant) if constant else tuple(parts))

    def _expression(self, node: Term) -> Template:
        """Return the text of an expression map that is no term map."""
        given, place = self._given(node), self._place
        if not given:
            raise self._graph.error(place, f"expected one of {', '.join(_TERMS)} in an expression map, found none")
        text = self._graph.text(node, given[0], place)
        assert text is not None, node
        if given == ["constant"]:
            return Template(text, (text,) if text else ())
        return self._reference(text) if given == ["reference"] else self._template(text)

    def _checked_iri(self, term: TermMap) -> TermMap:
        """Return the map of an IRI with its base before it, if its first constant is relative.

        Raises: SettingsError (no IRI, or a relative one and no base)."""
        parts, text = term.template.parts, term.template.text
        first = parts[0] if parts else ""
        is_known = isinstance(first, str) or not first.is_raw
        if is_known and not (isinstance(first, str) and _SCHEME.match(first)):
            if self._base is None:
                raise self._graph.error(
                    self._place,
                    f"expected a template that begins with the scheme of an absolute IRI, found {text!r}: give "
                    "rml:baseIRI, or the base of the source (--base)",
                )
            constant = first if isinstance(first, str) else ""
            rest = parts[1:] if isinstance(first, str) else parts
            term = TermMap("iri", Template(text, (self._base + constant, *rest)), is_uri=term.is_uri)
        if any(NOT_OF_IRIS.search(part) for part in term.template.parts if isinstance(part, str)):
            raise self._graph.error(self._place, f"expected an IRI, found {text!r}")
        return term

    def _datatype(self, node: Term) -> TermMap | None:
        found = self._terms(node, "datatype")
        if not found:
            return None
        if len(found) > 1 or found[0].kind != "iri":
            raise self._graph.error(self._place, "expected one datatype, an IRI")
        return found[0]

    def _language(self, node: Term) -> Template | None:
        graph = self._graph
        given = [one.value if isinstance(one, ox.Literal) else "" for one in graph.values(node, "language")]
        found = [Template(one, (one,)) for one in given]
        found += [self._expression(one) for one in graph.values(node, "languageMap")]
        if len(found) > 1:
            raise graph.error(self._place, f"expected one language, found {len(found)}")
        if not found:
            return None
        tag = found[0].text
        is_known = bool(re.fullmatch(LANGUAGE_TAG, tag)) and (self._source.is_modern or not _UNREGISTERED.match(tag))
        if not found[0].names and not is_known:
            raise graph.error(self._place, f"expected a language tag of BCP 47 such as en or de-AT, found {tag!r}")
        return found[0]


def _label(template: Template) -> Template:
    """Return a template whose constants are encoded as its cells are, so that it makes labels of blank nodes."""
    _, encode = encoded_cell("blank")
    return Template(template.text, tuple(encode(part) if isinstance(part, str) else part for part in template.parts))
