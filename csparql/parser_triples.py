"""Triples blocks: predicate and object lists, blank nodes, collections. For patterns and for templates."""

from __future__ import annotations

from wukongs.csparql.algebra import TermOrVariable, TriplePattern
from wukongs.csparql.parser_base import NUMBERS
from wukongs.csparql.parser_triple_terms import TripleTermParser
from wukongs.csparql.paths import Path
from wukongs.csparql.terms import RDF, Term, Variable, iri
from wukongs.csparql.tokens import Token

RDF_FIRST = iri(RDF + "first")
RDF_REST = iri(RDF + "rest")
RDF_NIL = iri(RDF + "nil")

_A_SUBJECT = "a subject: an IRI, a literal, a variable or a blank node"
_A_PREDICATE = "a predicate: an IRI, a variable or 'a'"
_A_PATH = "a predicate: an IRI, a variable, 'a' or a property path"
_AN_OBJECT = "an object: an IRI, a literal, a variable or a blank node"
_TERM_KINDS = frozenset(("var", "iri", "pname", "blank", "string", "TRUE", "FALSE", "[", "(", "<<", "<<(", *NUMBERS))


class TriplesParser(TripleTermParser):
    """Reads triples into `patterns`, in the graph `graph`."""

    def __init__(self, text: str, base: str | None, source: str) -> None:
        super().__init__(text, base, source)
        self.in_scope: dict[Variable, None] = {}
        """The variables of patterns, in the order in which the text names them."""
        self.scope_number = 0
        """The number of the basic graph pattern that we are in, which is as far as a blank node label reaches."""
        self.scope_count = 0
        self.labels: dict[str, tuple[int, Variable]] = {}

    def at_triples(self) -> bool:
        return self.token.kind in _TERM_KINDS or self.at_signed_number()

    def triples_block(self) -> None:
        """Read triples separated by full stops, with or without a last one."""
        while True:
            self._triples_same_subject()
            if not self.accept("."):
                if self.at_triples():
                    raise self.error("'.', ';' or ',' before what follows the triple")
                return
            if not self.at_triples():
                return

    def _triples_same_subject(self) -> None:
        subject: TermOrVariable
        if self.token.kind == "[" and self.peek().kind != "]":
            subject = self._property_list_node()
            if self._at_verb():
                self.property_list(subject)
        elif self.token.kind == "(" and self.peek().kind != ")":
            subject = self._collection()
            if self._at_verb():
                self.property_list(subject)
        elif self.token.kind == "<<":
            subject = self.reified_triple()
            if self._at_verb():
                self.property_list(subject)
        else:
            self.check_subject()
            self.property_list(self.variable_or_term(_A_SUBJECT))

    def _at_verb(self) -> bool:
        token = self.token
        return token.kind in ("var", "iri", "pname", "^", "!", "(") or token.text == "a"

    def property_list(self, subject: TermOrVariable) -> None:
        """Read `predicate object, object; predicate object ...` for a subject; at least one."""
        while True:
            start = self.index
            predicate = self._verb()
            is_plain = self.index == start + 1
            while True:
                object_ = self._object()
                if isinstance(predicate, Variable | Term):
                    self.patterns.append(TriplePattern(subject, predicate, object_, self.graph))
                    if is_plain and self.token.kind in ("~", "{|"):
                        self.annotations(subject, predicate, object_)
                else:
                    self.add_path(subject, predicate, object_)
                if self.token.kind in ("~", "{|"):
                    raise self.error("no reifier or annotation behind a property path, which is no triple")
                if not self.accept(","):
                    break
            if self.token.kind != ";":
                return
            while self.accept(";"):
                pass
            if not self._at_verb():
                return

    def _verb(self) -> Path | Variable:
        if self.token.kind == "var":
            return self._variable()
        if self.at_iri() and self.peek().kind in _TERM_KINDS:
            return self.iri(_A_PREDICATE)  # as most predicates are; the grammar of paths takes twice as long
        if not self._at_verb():
            raise self.error(_A_PATH if self.paths_allowed else _A_PREDICATE)
        return self.path()

    def _object(self) -> TermOrVariable:
        if self.token.kind == "[" and self.peek().kind != "]":
            return self._property_list_node()
        if self.token.kind == "(" and self.peek().kind != ")":
            return self._collection()
        if self.token.kind == "<<":
            return self.reified_triple()
        return self.variable_or_term(_AN_OBJECT)

    def variable_or_term(self, expected: str) -> TermOrVariable:
        """Read a variable, IRI, literal, blank node, `[]`, `()` or triple term."""
        kind = self.token.kind
        if kind == "var":
            return self._variable()
        if kind in ("iri", "pname"):
            return self.iri(expected)
        if kind == "blank":
            return self._labelled(self.advance())
        if kind == "[":
            self.advance()
            self.expect("]", "']'")
            return self.fresh_blank()
        if kind == "(":
            self.advance()
            self.expect(")", "')'")
            return RDF_NIL
        if self.at_literal():
            return self.literal()
        if kind == "<<(":
            return self.triple_term()
        raise self.error(expected)

    def _variable(self) -> Variable:
        variable = self.named(self.advance())
        self.in_scope[variable] = None
        return variable

    def new_scope(self) -> None:
        """Begin another basic graph pattern."""
        self.scope_count += 1
        self.scope_number = self.scope_count

    def _labelled(self, token: Token) -> Variable:
        scope_number, variable = self.labels.get(token.text, (self.scope_number, None))
        if variable is None:
            variable = self.fresh_blank()
            self.labels[token.text] = scope_number, variable
        elif scope_number != self.scope_number:
            expected = "a blank node label that is new to this basic graph pattern"
            raise self.error(expected, token, f"'{token.text}', which is used in another one; a variable can be shared")
        return variable

    def _property_list_node(self) -> Variable:
        """Read `[ predicate object; ... ]`."""
        self.expect("[", "'['")
        node = self.fresh_blank()
        self.property_list(node)
        self.expect("]", "';', ',' or ']'")
        return node

    def _collection(self) -> Variable:
        """Read `( object ... )` with at least one object, into rdf:first and rdf:rest."""
        self.expect("(", "'('")
        head = cell = self.fresh_blank()
        while True:
            self.patterns.append(TriplePattern(cell, RDF_FIRST, self._object(), self.graph))
            if self.accept(")"):
                self.patterns.append(TriplePattern(cell, RDF_REST, RDF_NIL, self.graph))
                return head
            following = self.fresh_blank()
            self.patterns.append(TriplePattern(cell, RDF_REST, following, self.graph))
            cell = following
