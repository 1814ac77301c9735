"""store/terms.py: ids and canonical forms, term by term."""

from __future__ import annotations

import random

import numpy as np
import pytest
import xxhash

from tests.oracles.ntriples import XSD, canonical
from wukongs.errors import DataError
from wukongs.store import hash_kernels
from wukongs.store.encoder import canonical_term, encode_columns
from wukongs.store.term_id_kernels import canonical_ids
from wukongs.store.term_ids import DATATYPE_NAMES, DATATYPES, hash_mask, readonly_bytes, term_ids
from wukongs.store.terms import blank_node, hash_id, split_literal, term_id, to_ntriples, xxh64


@pytest.mark.nojit
@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 12, 31, 32, 33, 63, 64, 100])
def test_hash_is_that_of_the_xxhash_package(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert xxh64(data) == xxhash.xxh64_intdigest(data, 42)
    assert xxh64(data, 7) == xxhash.xxh64_intdigest(data, 7)


@pytest.mark.nojit
def test_hash_kernel_equals_its_py_func() -> None:
    data = np.frombuffer(random.Random(1).randbytes(90), np.uint8)
    plain = getattr(hash_kernels.xxh64, "py_func", hash_kernels.xxh64)
    with np.errstate(over="ignore"):
        for stop in (5, 31, 32, 90):
            assert int(plain(data, 1, stop, np.uint64(42))) == xxhash.xxh64_intdigest(data[1:stop].tobytes(), 42)


@pytest.mark.nojit
def test_id_is_the_top_of_the_hash_shifted_by_one() -> None:
    text = "<http://example.org/é>"
    digest = xxhash.xxh64_intdigest(text.encode(), 42)
    assert term_id(text) == (digest >> 2) << 1
    assert term_id(text, hash_bits=16) == (digest >> 48) << 47
    assert hash_id(text.encode(), 62, seed=43) == (xxhash.xxh64_intdigest(text.encode(), 43) >> 2) << 1


@pytest.mark.nojit
def test_a_zero_hash_is_replaced() -> None:
    texts = (str(number).encode() for number in range(1000))
    zero = next(text for text in texts if xxhash.xxh64_intdigest(text, 42) >> 60 == 0)
    assert hash_id(zero, hash_bits=4) == 2


def test_hash_bits_out_of_range() -> None:
    with pytest.raises(ValueError, match="hash_bits = 63: expected 1 to 62"):
        term_id("<http://x>", 63)


@pytest.mark.nojit
def test_blank_node_is_labelled_by_its_scope() -> None:
    assert blank_node(b"load:1", "b0") == f"_:s{xxhash.xxh64_hexdigest(b'load:1', 42)}xb0"
    assert blank_node(b"load:1", "b0") != blank_node(b"load:2", "b0")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('"a"', ("a", None, None)),
        ('"a"@en-gb', ("a", None, "en-gb")),
        ('"a"^^<http://t>', ("a", "http://t", None)),
        ('""', ("", None, None)),
        ('"say "hi"@en"', ('say "hi"@en', None, None)),
        ('"x"^^<y>"^^<http://t>', ('x"^^<y>', "http://t", None)),
    ],
)
def test_split_literal_reads_from_the_right(text: str, parts: tuple[str, str | None, str | None]) -> None:
    assert split_literal(text) == parts


def test_split_literal_refuses_others() -> None:
    with pytest.raises(ValueError, match="not a literal in canonical form: '<http://x>'"):
        split_literal("<http://x>")


@pytest.mark.nojit
@pytest.mark.parametrize(
    "term",
    [
        "<http://a/b>",
        '"plain"',
        r'"tab\t nl\n cr\r quote\" back\\ slash\\n"',
        r'"\u00e9\U0001F600"',
        '"x"@EN-us',
        f'"5"^^<{XSD}string>',
        f'"05"^^<{XSD}integer>',
        rf'"\u0035"^^<{XSD}integer>',
        r'"a"^^<http://t/\u00e9>',
        r"<http://a/\u00e9\U0001F600>",
        "_:b.1-x",
        "_:é·",
    ],
)
def test_canonical_term_and_back(term: str) -> None:
    found = canonical_term(term, b"s")
    assert found == canonical(term, b"s")
    again = to_ntriples(found)
    if not term.startswith("_"):
        assert canonical_term(again, b"s") == found


def test_canonical_term_names_what_is_wrong() -> None:
    with pytest.raises(DataError) as caught:
        canonical_term('"a" ', b"")
    assert str(caught.value) == "row 0, column 'object', character 4: expected the end of the term, found '\"a\" '"


@pytest.mark.nojit
def test_ids_of_many_terms_are_those_of_the_encoder() -> None:
    """Ids of canonical forms, by the kernel and un-jitted, against those that N-Triples gets."""
    terms = [
        "<http://x>", "<http://x/é>", "_:b", '"a"', '""', '"seven77"', '"eight888"', '"é"', '"a"@en', '"1"@en',
        f'"1"^^<{XSD}integer>', f'"1.50"^^<{XSD}decimal>', f'"true"^^<{XSD}boolean>', f'"x"^^<{XSD}integer>',
        '"a \\"b\\" c"', f'"1\\"^^<x>"^^<{XSD}integer>', '"1"^^<http://x/t>', f'"{"9" * 30}"^^<{XSD}integer>',
    ]  # fmt: skip
    encoded = encode_columns(["<http://s>"] * len(terms), ["<http://p>"] * len(terms), terms, scope=b"")
    canonical_forms = [canonical(term, b"") for term in terms]
    assert term_ids(canonical_forms).tolist() == encoded.objects.tolist()
    parts = [text.encode() for text in canonical_forms]
    offsets = np.cumsum([0, *map(len, parts)])
    found = np.empty(len(parts), np.int64)
    plain = getattr(canonical_ids, "py_func", canonical_ids)
    with np.errstate(over="ignore"):
        seed, mask = np.uint64(42), hash_mask(62)
        plain(readonly_bytes(b"".join(parts)), offsets, DATATYPE_NAMES, DATATYPES, seed, mask, found)
    assert found.tolist() == encoded.objects.tolist()
    assert term_ids(["", '"', "<"]).tolist() == [hash_id(text) for text in (b"", b'"', b"<")]
