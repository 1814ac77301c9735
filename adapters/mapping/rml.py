"""RML mapping files (Turtle) as mappings, in the old vocabulary (with R2RML's) and the one of 2024.

Read is the core: logical sources of CSV and JSON, templates, references, constants, classes, term types, datatypes,
languages and graphs. Joins, functions, queries and everything else is refused by name: nothing is left out in silence.
RML has no event time, so the source that names the file says when a record happens.

Source: https://rml.io/specs/rml/ and https://www.w3.org/TR/r2rml/ (sections 7 and 11 for what terms become).
"""

from __future__ import annotations

import re
from pathlib import Path

import pyoxigraph as ox

from wukongs.adapters.mapping.mapping import Mapping, TripleMap
from wukongs.adapters.mapping.templates import NOT_OF_IRIS, Cell, Kind, Template, TermMap
from wukongs.errors import SettingsError

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_VOCABULARIES = ("http://semweb.mmlab.be/ns/rml#", "http://www.w3.org/ns/r2rml#", "http://w3id.org/rml/")
_TEMPLATE = re.compile(r"\\(?P<sign>[\\{}])|\{(?P<name>(?:[^{}\\]|\\.)+)\}|(?P<text>[^{}\\]+|\\)|(?P<brace>[{}])")
_TERMS = ("template", "reference", "constant")
_OF_TERM = (*_TERMS, "termType", "datatype", "datatypeMap", "language", "languageMap", "class", "graph", "graphMap")
_KINDS: dict[str, Kind] = {"IRI": "iri", "UnsafeIRI": "iri", "BlankNode": "blank", "Literal": "literal"}

Node = ox.NamedNode | ox.BlankNode
Term = Node | ox.Literal | ox.Triple


def load_rml(path: str, data: tuple[str, ...]) -> Mapping:
    """Return the mapping of the triples maps whose logical source is one of the data files, or of all, if they have one
    logical source. It has no time.

    Raises: SettingsError (no Turtle; a feature that is not read, by the name of its triples map)."""
    try:
        quads = list(ox.parse(Path(path).read_bytes(), format=ox.RdfFormat.TURTLE, base_iri="urn:rml:"))
    except (OSError, SyntaxError, ValueError) as error:
        raise SettingsError(f"{path}: expected an RML mapping in Turtle, found an error: {error}") from None
    graph = _Graph(path, quads)
    maps = [node for node in graph.nodes() if graph.values(node, "logicalSource")]
    if not maps:
        raise SettingsError(f"{path}: expected a triples map with a logical source, found none")
    sources = {node: _LogicalSource(graph, node) for node in maps}
    names = {Path(one).name.removesuffix(".gz") for one in data}
    distinct = {source.file for source in sources.values()}
    chosen = [node for node in maps if len(distinct) == 1 or Path(sources[node].file).name in names]
    if not chosen:
        expected = " or ".join(sorted(names))
        raise SettingsError(f"{path}: expected a logical source called {expected}, found {', '.join(sorted(distinct))}")
    triples = [triple for node in chosen for triple in _TriplesMap(graph, node, sources[node]).triples()]
    if not triples:
        raise SettingsError(f"{path}: expected classes or predicate-object maps, found none")
    return Mapping(file=path, triples=tuple(triples))


class _Graph:
    """The triples of a mapping file, by subject and by the local names of the vocabularies."""

    def __init__(self, path: str, quads: list[ox.Quad]) -> None:
        self.path = path
        self._known: dict[Node, dict[str, list[Term]]] = {}
        for quad in quads:
            name = self.local(quad.predicate)
            if name is None and quad.predicate.value != RDF_TYPE and isinstance(quad.subject, Node):
                name = f"<{quad.predicate.value}>"
            if name is not None and isinstance(quad.subject, Node):
                self._known.setdefault(quad.subject, {}).setdefault(name, []).append(quad.object)

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
        f"<{node.value.removeprefix('urn:rml:')}>" if isinstance(node, ox.NamedNode) else "a triples map without a name"
    )


class _LogicalSource:
    """file: as it is named; is_json: whether references are JSON paths; iterator: what stands before each of them."""

    def __init__(self, graph: _Graph, triples_map: Node) -> None:
        place = _name(triples_map)
        node = graph.value(triples_map, "logicalSource", place)
        assert node is not None, triples_map
        graph.check(node, ("source", "referenceFormulation", "iterator"), place)
        source = graph.value(node, "source", place)
        if isinstance(source, Node) and (path := graph.text(source, "path", place)) is not None:  # a file of RML 2024
            graph.check(source, ("path", "root", "encoding", "compression", "null"), place)
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
        iterator = graph.text(node, "iterator", place) or "$"
        if self.is_json:
            steps = _json_path(graph, place, iterator)
            self.iterator = "" if steps in ("", "[]") else steps.removeprefix("[].") + "."
        else:
            self.iterator = ""

    def cell(self, graph: _Graph, place: str, reference: str) -> str:
        """Return the name of a cell."""
        return self.iterator + _json_path(graph, place, reference) if self.is_json else reference


def _json_path(graph: _Graph, place: str, text: str) -> str:
    """Return a JSON path as a mapping names it: `$.items[*].sku` as `items[].sku`."""
    path = text.removeprefix("$").removeprefix(".").replace("[*]", "[]")
    path = re.sub(r"\['([^'\]]+)'\]", r".\1", path).removeprefix(".")
    if ".." in path or re.search(r"\[[^\]]|[?@()]", path):
        raise graph.error(place, f"expected a JSON path of names and [*], found {text!r}")
    return path


class _TriplesMap:
    def __init__(self, graph: _Graph, node: Node, source: _LogicalSource) -> None:
        self._graph, self._node, self._source, self._place = graph, node, source, _name(node)
        graph.check(node, ("logicalSource", "subjectMap", "subject", "predicateObjectMap"), self._place)

    def triples(self) -> list[TripleMap]:
        graph, place = self._graph, self._place
        subject_node = graph.value(self._node, "subjectMap", place)
        subjects = self._terms(self._node, "subject", "subjectMap", "iri")
        if len(subjects) != 1:
            raise graph.error(place, f"expected one subject map, found {len(subjects)}")
        subject = subjects[0]
        if subject.kind == "literal":
            raise graph.error(place, "expected an IRI or a blank node as subject, found a literal")
        graphs = [] if subject_node is None else self._terms(subject_node, "graph", "graphMap", "iri")
        classes = [] if subject_node is None else graph.values(subject_node, "class")
        a = TermMap("iri", Template(RDF_TYPE, (RDF_TYPE,)))
        found = self._in_graphs(subject, a, [self._constant(one) for one in classes], graphs)
        for node in graph.values(self._node, "predicateObjectMap"):
            graph.check(node, ("predicate", "predicateMap", "object", "objectMap", "graph", "graphMap"), place)
            own = [*graphs, *self._terms(node, "graph", "graphMap", "iri")]
            objects = self._terms(node, "object", "objectMap", "literal")
            for predicate in self._terms(node, "predicate", "predicateMap", "iri"):
                if predicate.kind != "iri":
                    raise graph.error(place, "expected an IRI as predicate")
                found += self._in_graphs(subject, predicate, objects, own)
        return found

    @staticmethod
    def _in_graphs(
        subject: TermMap, predicate: TermMap, objects: list[TermMap], graphs: list[TermMap]
    ) -> list[TripleMap]:
        into: list[TermMap | None] = [*graphs] or [None]
        return [TripleMap(subject, predicate, object_, graph) for object_ in objects for graph in into]

    def _terms(self, node: Term, short: str, long: str, default: Kind) -> list[TermMap]:
        """Return the terms of a property and of its shortcut for constants."""
        constants = [self._constant(one) for one in self._graph.values(node, short)]
        return constants + [self._term(one, default) for one in self._graph.values(node, long)]

    def _constant(self, term: Term) -> TermMap:
        if isinstance(term, ox.NamedNode):
            return TermMap("iri", Template(term.value, (term.value,)))
        if isinstance(term, ox.Literal):
            datatype = None if term.language or term.datatype.value.endswith("#string") else term.datatype.value
            language = Template(term.language, (term.language,)) if term.language else None
            return TermMap("literal", Template(term.value, (term.value,) if term.value else ()), datatype, language)
        raise self._graph.error(self._place, f"expected an IRI or a literal as constant, found {term}")

    def _term(self, node: Term, default: Kind) -> TermMap:
        graph, place = self._graph, self._place
        graph.check(node, _OF_TERM, place)
        given = [name for name in _TERMS if graph.values(node, name)]
        if len(given) != 1:
            raise graph.error(
                place, f"expected one of {', '.join(_TERMS)} in a term map, found {' and '.join(given) or 'none'}"
            )
        if given == ["constant"]:
            constant = graph.value(node, "constant", place)
            assert constant is not None, node
            return self._constant(constant)
        datatype, language = self._datatype(node), self._language(node)
        text = graph.text(node, given[0], place)
        assert text is not None, node
        if given == ["template"]:
            template, kind = self._template(text), default if datatype or language else "iri"
        else:
            template, kind = Template(text, (Cell(self._source.cell(graph, place, text)),)), default
        term_type = graph.value(node, "termType", place)
        if term_type is not None:
            name = graph.local(term_type) or str(term_type)
            if name not in _KINDS:
                raise graph.error(place, f"expected IRI, BlankNode or Literal as termType, found {name}")
            kind = _KINDS[name]
        if kind == "iri" and given == ["reference"]:
            template = Template(text, (Cell(self._source.cell(graph, place, text), True),))
        if kind != "literal" and (datatype or language):
            raise graph.error(place, "expected a datatype or a language of a literal, found one of another term")
        self._check_iri(kind, template)
        return TermMap(kind, template, datatype, language)

    def _template(self, text: str) -> Template:
        parts: list[str | Cell] = []
        for match in _TEMPLATE.finditer(text):
            if match["brace"]:
                raise self._graph.error(self._place, f"expected a template, found a single brace in {text!r}")
            if match["name"]:
                name = re.sub(r"\\(.)", r"\1", match["name"])
                parts.append(Cell(self._source.cell(self._graph, self._place, name)))
            elif parts and isinstance(parts[-1], str):
                parts[-1] += match["sign"] or match["text"]
            else:
                parts.append(match["sign"] or match["text"])
        return Template(text, tuple(parts))

    def _check_iri(self, kind: Kind, template: Template) -> None:
        first = template.parts[0]
        if kind == "iri" and isinstance(first, str) and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", first):
            raise self._graph.error(self._place, f"expected an absolute IRI, found {template.text!r}")
        if kind == "iri" and isinstance(first, Cell) and not first.is_raw:
            raise self._graph.error(
                self._place, f"expected a template that begins with the scheme of an IRI, found {template.text!r}"
            )
        constants = [part for part in template.parts if isinstance(part, str)]
        if kind == "iri" and any(NOT_OF_IRIS.search(part) for part in constants):
            raise self._graph.error(self._place, f"expected an IRI, found {template.text!r}")
        if kind == "blank" and any(not re.fullmatch(r"\w[\w.-]*", part, re.ASCII) for part in constants):
            raise self._graph.error(
                self._place, f"expected a blank node's label of letters, digits and cells, found {template.text!r}"
            )

    def _datatype(self, node: Term) -> str | None:
        found = self._terms(node, "datatype", "datatypeMap", "iri")
        if not found:
            return None
        if len(found) > 1 or found[0].names or found[0].kind != "iri":
            raise self._graph.error(self._place, "expected one constant IRI as datatype")
        return found[0].template.text

    def _language(self, node: Term) -> Template | None:
        found = self._terms(node, "language", "languageMap", "literal")
        if len(found) > 1:
            raise self._graph.error(self._place, f"expected one language, found {len(found)}")
        return found[0].template if found else None
