"""Triple terms, reified triples, reifiers and annotations of SPARQL 1.2, put into words that the algebra has.

    <<( s p o )>>          a triple term: without variables a Term of its own (csparql/terms.py), else a variable, which
                           TripleParts ties to its parts in a pattern, and `put_together` in a template
    << s p o ~ r >>        the reifier r (a new blank node if none is named), with r rdf:reifies <<( s p o )>>
    s p o ~ r {| q z |}    the triple, with r rdf:reifies <<( s p o )>> and r q z

So triple patterns and the operators know nothing of triple terms; TripleParts and functions do (TRIPLE, SUBJECT,
PREDICATE, OBJECT). Whether a term is pulled apart or put together is settled by the order of exploration.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from wukongs.csparql.algebra import Bgp, Call, Expression, Extend, Node, TermOrVariable, TripleParts, TriplePattern
from wukongs.csparql.joining import join
from wukongs.csparql.parser_expressions import AN_EXPRESSION, Mention
from wukongs.csparql.parser_paths import RDF_TYPE, PathParser
from wukongs.csparql.terms import RDF, Term, Variable, iri, triple_term
from wukongs.csparql.tokens import Token

RDF_REIFIES = iri(RDF + "reifies")

_A_PREDICATE = "a predicate: an IRI, a variable or 'a'"


class TripleTerm(NamedTuple):
    """A triple term with variables, and the variable that stands for it."""

    variable: Variable
    parts: tuple[TermOrVariable, TermOrVariable, TermOrVariable]
    token: Token


class TripleTermParser(PathParser):
    """Reads what SPARQL 1.2 adds to triples, and to the terms of VALUES and of expressions."""

    def __init__(self, text: str, base: str | None, source: str) -> None:
        super().__init__(text, base, source)
        self.triple_terms: list[TripleTerm] = []
        """Those with variables of the patterns or of the template that are being read."""
        self.triple_term_count = 0
        self.in_data = False
        """Whether triples of INSERT DATA or DELETE DATA are read."""
        self.unnamed_reifiers: set[Token] = set()
        """The tokens that stand for a blank node though none is written."""

    def variable_or_term(self, expected: str) -> TermOrVariable:
        """Read a variable, IRI, literal or blank node."""
        raise NotImplementedError

    def check_subject(self) -> None:
        """Refuse what comes next as a subject of data that RDF has no such subject for: no pattern has to match it."""
        if self.in_data and (self.at_literal() or self.token.kind == "<<("):
            raise self.error("a subject that RDF can have, an IRI or a blank node, in DATA")

    def property_list(self, subject: TermOrVariable) -> None:
        """Read predicates and objects of a subject."""
        raise NotImplementedError

    # --- in patterns and templates ------------------------------------------------------------------------------------

    def triple_term(self) -> TermOrVariable:
        """Read `<<( s p o )>>`; return the term, or the variable that stands for it."""
        token = self.advance()
        self.check_subject()
        subject = self._part("a subject in the triple term: an IRI, a variable, a blank node or a triple term")
        predicate = self._plain_verb()
        object_ = self._part("an object in the triple term: an IRI, a literal, a variable, a blank node, a triple term")
        self.expect(")>>", "')>>' to close the triple term")
        return self._made((subject, predicate, object_), token)

    def _part(self, expected: str) -> TermOrVariable:
        if self.token.kind == "<<(":
            return self.triple_term()
        if self.token.kind == "[" and self.peek().kind != "]":
            raise self.error("'[]': a blank node inside of a triple has no properties", self.peek())
        if self.token.kind in ("(", "<<"):
            raise self.error(expected)
        return self.variable_or_term(expected)

    def _plain_verb(self) -> TermOrVariable:
        token = self.token
        if token.text == "a":
            self.advance()
            return RDF_TYPE
        if token.kind not in ("var", "iri", "pname"):
            raise self.error(_A_PREDICATE)
        return self.variable_or_term(_A_PREDICATE)

    def _made(self, parts: tuple[TermOrVariable, TermOrVariable, TermOrVariable], token: Token) -> TermOrVariable:
        """Return what stands for a triple term in the triples that are being read."""
        terms = [part.text for part in parts if isinstance(part, Term)]
        if len(terms) == 3:
            return triple_term(*terms)
        self.mentions.extend(Mention(part, token) for part in parts if isinstance(part, Variable))
        self.triple_term_count += 1
        variable = Variable(f"triple.t{self.triple_term_count}")  # no name of the text has a dot, no subquery's a 't'
        self.triple_terms.append(TripleTerm(variable, parts, token))
        return variable

    def reified_triple(self) -> TermOrVariable:
        """Read `<< s p o >>` or `<< s p o ~ r >>`; return the reifier."""
        token = self.advance()
        self.check_subject()
        subject = self._reified_part("a subject: an IRI, a variable, a blank node, a triple term or a reified triple")
        predicate = self._plain_verb()
        object_ = self._reified_part("an object: an IRI, a literal, a variable, a blank node or a triple")
        reifier = self._reifier() if self.token.kind == "~" else self._unnamed(token)
        self.expect(">>", "'~' and a reifier, or '>>' to close the reified triple")
        self._reify(reifier, (subject, predicate, object_), token)
        return reifier

    def _reified_part(self, expected: str) -> TermOrVariable:
        return self.reified_triple() if self.token.kind == "<<" else self._part(expected)

    def _unnamed(self, token: Token) -> Variable:
        self.unnamed_reifiers.add(token)
        return self.fresh_blank()

    def _reifier(self) -> TermOrVariable:
        """Read `~` and the reifier, if it is named."""
        token = self.advance()
        if self.token.kind in ("var", "iri", "pname", "blank", "["):
            return self._part("a reifier: an IRI, a variable or a blank node")
        return self._unnamed(token)

    def _reify(
        self, reifier: TermOrVariable, parts: tuple[TermOrVariable, TermOrVariable, TermOrVariable], token: Token
    ) -> None:
        self.patterns.append(TriplePattern(reifier, RDF_REIFIES, self._made(parts, token), self.graph))

    def annotations(self, subject: TermOrVariable, predicate: TermOrVariable, object_: TermOrVariable) -> None:
        """Read the reifiers and annotation blocks behind a triple."""
        reifier: TermOrVariable | None = None
        while self.token.kind in ("~", "{|"):
            token = self.token
            if token.kind == "~":
                reifier = self._reifier()
                self._reify(reifier, (subject, predicate, object_), token)
                continue
            self.advance()
            if reifier is None:
                reifier = self._unnamed(token)
                self._reify(reifier, (subject, predicate, object_), token)
            self.property_list(reifier)
            self.expect("|}", "';', ',' or '|}'")
            reifier = None

    def with_triple_terms(self, patterns: tuple[TriplePattern, ...], path_nodes: list[Node]) -> Node:
        """Return patterns joined with what ties the triple terms in them to their parts."""
        node: Node = Bgp(patterns)
        tied = [TripleParts(found.variable, *found.parts) for found in self.triple_terms]
        self.triple_terms = []
        for part in (*path_nodes, *tied):
            node = join(node, part)
        return node

    def put_together(
        self, node: Node, template: tuple[TriplePattern, ...], triple_terms: list[TripleTerm]
    ) -> tuple[Node, tuple[TriplePattern, ...]]:
        """Bind the variables that stand for the triple terms of a template; return the template that goes with that.

        A blank node inside of a triple term is made in the pattern, by BNODE(), for the whole template."""
        known = {found.variable: found.parts for found in triple_terms}
        blanks: dict[TermOrVariable, Variable] = {}
        for part in (part for parts in known.values() for part in parts):
            if isinstance(part, Variable) and part.is_blank and part not in blanks:
                blanks[part] = Variable(f"triple.b{len(blanks)}")
                node = Extend(node, blanks[part], Call("BNODE", ()))

        def made(part: TermOrVariable) -> Expression:
            parts = known.get(part) if isinstance(part, Variable) else None
            return blanks.get(part, part) if parts is None else Call("TRIPLE", tuple(map(made, parts)))

        for variable in known:
            node = Extend(node, variable, made(variable))
        filled = (
            replace(quad, subject=blanks.get(quad.subject, quad.subject), object=blanks.get(quad.object, quad.object))
            for quad in template
        )
        return node, tuple(filled) if blanks else template

    # --- in VALUES and expressions ------------------------------------------------------------------------------------

    def triple_term_data(self) -> Term:
        """Read `<<( s p o )>>` of IRIs and, as the object, a literal or another one."""
        self.advance()
        subject = self.iri("an IRI as the subject of a triple term in VALUES")
        predicate = self._data_verb()
        expected = "an object in VALUES: an IRI, a literal or a triple term"
        if self.token.kind == "<<(":
            object_ = self.triple_term_data()
        else:
            object_ = self.literal() if self.at_literal() else self.iri(expected)
        self.expect(")>>", "')>>' to close the triple term")
        return triple_term(subject.text, predicate.text, object_.text)

    def _data_verb(self) -> Term:
        if self.token.text == "a":
            self.advance()
            return RDF_TYPE
        return self.iri("an IRI or 'a' as the predicate of a triple term in VALUES")

    def triple_term_expression(self) -> Expression:
        """Read `<<( s p o )>>` of IRIs, variables and, as the object, a literal or another one."""
        self.advance()
        subject = self._expression_part("an IRI or a variable as the subject of a triple term")
        predicate = self._data_verb() if self.token.kind != "var" else self._expression_part(_A_PREDICATE)
        if self.token.kind == "<<(":
            object_ = self.triple_term_expression()
        else:
            object_ = self.literal() if self.at_literal() else self._expression_part(AN_EXPRESSION)
        self.expect(")>>", "')>>' to close the triple term")
        return Call("TRIPLE", (subject, predicate, object_))

    def _expression_part(self, expected: str) -> Expression:
        if self.token.kind != "var":
            return self.iri(expected)
        token = self.advance()
        variable = self.named(token)
        self.mentions.append(Mention(variable, token))
        return variable
