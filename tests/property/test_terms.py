"""Inlined literals over their whole lexical space, against decimal and datetime; canonical forms against an oracle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import rdflib
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.oracles.ntriples import XSD, read_line, value_of
from tests.oracles.typed_columns import single
from wukongs.store.encoder import canonical_term, encode_ntriples
from wukongs.store.payload_kernels import id_to_payload, payload_to_id
from wukongs.store.terms import (
    KIND_DATE_TIME,
    KIND_DATE_TIME_LOCAL,
    KIND_NONE,
    decimal_parts,
    numeric_values,
    split_literal,
    term_id,
    to_ntriples,
    unpack,
)

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_signs = st.sampled_from(["", "-", "+"])
_digits = st.text("0123456789", max_size=24)
_numbers = st.builds(
    lambda sign, whole, dot, fraction: sign + whole + dot + fraction,
    _signs,
    _digits,
    st.sampled_from(["", "."]),
    _digits,
)
_scientific = st.builds(
    lambda sign, first, rest, e, plus, exponent: sign + first + (f".{rest}" if rest else "") + e + plus + exponent,
    _signs,
    st.sampled_from("0123456789"),
    st.text("0123456789", max_size=15),
    st.sampled_from("eE"),
    st.sampled_from(["", "+", "-"]),
    st.one_of(st.integers(0, 40).map(str), st.integers(0, 40).map("{:02}".format)),
)
_integer_types = st.one_of(
    st.sampled_from(["integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger"]),
    st.sampled_from(["nonPositiveInteger", "negativeInteger", "unsignedLong", "unsignedInt", "unsignedShort"]),
    st.just("unsignedByte"),
)
_zones = st.one_of(
    st.sampled_from(["", "Z", "-00:00", "+14:00", "-12:00", "+14:15", "z"]),
    st.builds(
        "{}{:02}:{:02}".format, st.sampled_from("+-"), st.integers(0, 15), st.sampled_from([0, 7, 15, 30, 45, 60])
    ),
)
_days = st.builds("{:04}-{:02}-{:02}".format, st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
_times = st.builds(
    "{:02}:{:02}:{:02}{}".format,
    st.integers(0, 25),
    st.integers(0, 61),
    st.integers(0, 61),
    st.one_of(st.just(""), st.text("0123456789", max_size=7).map(".{}".format)),
)
_literals = st.one_of(
    st.tuples(_numbers, st.sampled_from(["double", "decimal", "float", "integer"])),
    st.tuples(_scientific, st.sampled_from(["double", "float", "decimal"])),
    st.tuples(st.text(st.characters(max_codepoint=130), max_size=9), st.just("string")),
    st.tuples(st.integers(-(2**62), 2**62).map(str), _integer_types),
    st.tuples(st.integers(-300, 300).map(str), _integer_types),
    st.tuples(st.sampled_from(["true", "false", "1", "0", "T", ""]), st.just("boolean")),
    st.tuples(st.builds("{}T{}{}".format, _days, _times, _zones), st.just("dateTime")),
    st.tuples(st.builds("{}{}".format, _days, _zones), st.just("date")),
    st.tuples(st.text(max_size=30).filter(str.isprintable), _integer_types),
)


def _unpacked(term: int) -> str:
    return unpack(np.array([term]))[0].tobytes().decode()


@fuzzed(1500)
@given(_literals)
def test_an_inlined_literal_comes_back_and_has_its_value(literal: tuple[str, str]) -> None:
    lexical, name = literal
    text = f'"{lexical}"' if name == "string" else f'"{lexical}"^^<{XSD}{name}>'
    term = term_id(text)
    if term & 1 == 0:
        return
    assert _unpacked(term) == text
    kinds, values = numeric_values(np.array([term]))
    if name == "string":
        assert kinds[0] == KIND_NONE
        return
    expected = value_of(lexical, XSD + name)
    if isinstance(expected, datetime):
        assert values[0] == (expected - EPOCH) / timedelta(milliseconds=1)
    elif name == "float":
        assert values[0] == single(lexical)
    else:
        assert values[0] == float(expected)
    if isinstance(expected, Decimal):
        numerators, scales = decimal_parts(np.array([term]))
        assert scales[0] >= 0 or name in ("double", "float")
        assert scales[0] < 0 or Decimal(int(numerators[0])).scaleb(-int(scales[0])) == expected


@fuzzed(300)
@given(st.lists(_literals, min_size=2, max_size=30))
def test_values_are_ordered_as_those_of_rdflib(literals: list[tuple[str, str]]) -> None:
    """Numbers among numbers, times with a zone among times; xsd:float is a float32 here and a float64 in rdflib."""
    numbers, times = [], []
    for lexical, name in literals:
        term = term_id(f'"{lexical}"^^<{XSD}{name}>')
        if term & 1 == 0 or name in ("boolean", "date", "string"):
            continue
        kinds, values = numeric_values(np.array([term]))
        theirs = rdflib.Literal(lexical, datatype=rdflib.URIRef(XSD + name), normalize=False).value
        assert theirs is not None, (lexical, name)
        if kinds[0] == KIND_DATE_TIME:
            times.append((values[0], theirs))
        elif kinds[0] != KIND_DATE_TIME_LOCAL:
            theirs = single(lexical) if name == "float" else theirs
            numbers.append((values[0], Fraction(float(theirs)) if name in ("double", "float") else Fraction(theirs)))
    for pairs in (numbers, times):
        for ours, theirs in pairs:
            for other, their_other in pairs:
                assert not (ours < other and theirs >= their_other)


@fuzzed(300)
@given(st.lists(st.tuples(st.integers(0, 10**15 - 1), st.integers(1, 14), st.booleans()), min_size=2, max_size=20))
def test_values_are_ordered_as_decimals(numbers: list[tuple[int, int, bool]]) -> None:
    lexicals = []
    for mantissa, scale, negative in numbers:
        digits = str(mantissa).rjust(scale + 1, "0")
        lexicals.append(f"{'-' if negative else ''}{digits[:-scale]}.{digits[-scale:]}")
    ids = np.array([term_id(f'"{lexical}"^^<{XSD}decimal>') for lexical in lexicals])
    assert (ids & 1 == 1).all()
    _, values = numeric_values(ids)
    exact = [Decimal(lexical) for lexical in lexicals]
    for i in range(len(exact)):
        for j in range(len(exact)):
            assert not (values[i] < values[j] and exact[i] >= exact[j])


@fuzzed(500)
@given(st.integers(0, 2**62 - 1))
def test_the_mix_is_a_bijection(payload: int) -> None:
    term = payload_to_id(np.int64(payload))
    assert term & 1
    assert 0 < term < 2**63
    assert id_to_payload(np.int64(term)) == payload


_any_text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@fuzzed(500)
@given(_any_text, st.sampled_from(["", "@en", "@de-at", "^^<http://t/x>", f"^^<{XSD}integer>"]))
def test_a_literal_survives_being_written_and_read(lexical: str, tail: str) -> None:
    text = f'"{lexical}"{tail}'
    assert canonical_term(to_ntriples(text), b"") == text
    assert split_literal(text)[0] == lexical


_pieces = st.one_of(
    st.sampled_from(
        ["<http://a/b>", "<a>", "<http://a b>", r"<http://\u00e9>", "_:b", "_:b.", "_:-", "_:1.2", '"x"@EN']
    ),
    st.sampled_from(
        ['"x"', '"x"@en', '"x"@', "@EN", '"', ".", "..", " ", "\t", "#", "^^", "é", "<", ">", '"a\\"b"', "_"]
    ),
    st.sampled_from([r"\n", r"\q", r"\u12", f'"5"^^<{XSD}integer>', f'"5"^^<{XSD}string>', ":", "€", "<<", "{", "x:y"]),
    st.sampled_from(
        ["_:a:", "_::", "@abcdefghi", " @en", "^^ ", " ^^", 'VERSION "1.2"', "VERSION", f"<{RDF}langString>"]
    ),
    st.sampled_from([r"\U0001F600", r"\uD800", '"é"', r'"\u0041"', "<http://x/\u00e9>", "_:é", "_:a·", "_:·"]),
)
_WIDE = ['"o" @EN-abcdefgh', f'"1.0" ^^\t<{XSD}double>', f'"o"^^<{RDF}langString>', '"o"@en-abcdefghi', '"o" ^^<u:d> ']
_well_formed = st.builds(
    lambda s, p, o, g, end: s + p + o + g + end,
    st.sampled_from(["<http://a/s> ", "_:a ", "_:a.b\t", "<x:>"]),
    st.sampled_from(["<http://a/p> ", "<http://a/p>", "<u:p>  "]),
    st.sampled_from(['"o" ', '"o"', '"o"@EN ', "_:o", "<http://o>", f'"1.0"^^<{XSD}double>', r'"\t\"" ', *_WIDE]),
    st.sampled_from(["", " <http://g> ", " _:g ", '"g"']),
    st.sampled_from([".", " . # c", ".#", "", ". x", " .\t"]),
)
_lines = st.one_of(
    st.lists(_pieces, max_size=8).map("".join), _well_formed, st.tuples(_well_formed, _pieces).map("".join)
)


@fuzzed(1500)
@given(st.lists(_lines, max_size=6), st.booleans())
def test_lines_are_read_as_the_grammar_says(lines: list[str], graphs: bool) -> None:
    expected = [read_line(line, b"scope", graphs) for line in lines]
    encoded, malformed = encode_ntriples("\n".join(lines).encode(), b"scope", graphs=graphs)
    assert [bad.line for bad in malformed] == [i + 1 for i, terms in enumerate(expected) if terms is None]
    known = dict(zip(encoded.terms.ids.tolist(), encoded.terms.texts(), strict=True))
    found = [
        tuple(known[term] if term in known else _unpacked(term) for term in row if term != -1)
        for row in zip(
            *(c.tolist() for c in (encoded.subjects, encoded.predicates, encoded.objects, encoded.graphs)), strict=True
        )
    ]
    assert found == [terms for terms in expected if terms]
