"""Documents that are cut off, nest too deeply or blow up end in a named error with its line, in every syntax."""

from __future__ import annotations

import gzip
import io
import random
import time
from pathlib import Path
from xml.parsers import expat

import numpy as np
import pyarrow as pa
import pytest

import wukongs
from tests.unit.store.test_rdf_parser import Slow
from wukongs.errors import DataError
from wukongs.store import line_pieces, rdf_files, rdf_parser, token_scan, xml_terms
from wukongs.store.document_kernels import (
    BEHIND_ROOT,
    DEPTH,
    GOES_ON,
    IS_CLOSED,
    MODE,
    PLAIN,
    QUIET_IN_MARKUP,
    QUIET_IN_TOKENS,
    STATE_WIDTH,
    TOO_DEEP,
    TOO_LONG,
    scan_markup,
    scan_tokens,
)
from wukongs.store.rdf_parser import parse_quads, parse_to_nquads

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
ROOT = f'<rdf:RDF xmlns:rdf="{RDF}" xmlns:e="http://e/">'
LONG = "x" * 900
HEAD = '<?xml version="1.0"?>\n<!-- > -->\n'


def triples_of(text: str | bytes, format: str = "rdf", size: int = 1 << 20) -> int:
    data = text.encode() if isinstance(text, str) else text
    file: io.BytesIO = Slow(data, size)  # type: ignore[assignment]
    return b"".join(parse_to_nquads(file, format, "http://b/", name="doc")).count(b"\n")


# --- the end of a document --------------------------------------------------------------------------------------------

WHOLE = {
    "rdf": f'{HEAD}<!DOCTYPE rdf:RDF [\n<!ENTITY x "y">]>\n{ROOT}<!-- a --><e:A rdf:about="s" e:z="/>">'
    "<e:p>&x;<![CDATA[z]]></e:p>"
    '<e:q rdf:resource="o"/><e:l rdf:parseType="Literal"><b/><!-- c --></e:l></e:A>\n</rdf:RDF>',
    "jsonld": '{"@id":"http://e/a","http://e/p":["x",{"@id":"http://e/b"}]}',
}


@pytest.mark.parametrize("format", WHOLE)
def test_a_document_that_is_cut_off_anywhere_is_an_error(format: str) -> None:
    text = WHOLE[format]
    assert triples_of(text, format) >= 2
    for length in range(len(text)):
        with pytest.raises((DataError, SyntaxError, ValueError)):
            triples_of(text[:length], format)
    for behind in ("", "\n", *(["<!-- c -->\n<?p i?>"] if format == "rdf" else [])):
        assert triples_of(text + behind, format) >= 2


def test_what_is_cut_off_is_said_with_its_line() -> None:
    with pytest.raises(DataError, match="the document is cut off: 2 elements are open at its end") as caught:
        triples_of(f"{HEAD}{ROOT}\n<e:A>\n")
    assert (caught.value.file, caught.value.line) == ("doc", 5)
    with pytest.raises(DataError, match="expected the end of the document behind its root element"):
        triples_of(f"{ROOT}</rdf:RDF>{ROOT}</rdf:RDF>")
    with pytest.raises(DataError, match="its root element is not whole"):
        parse_quads(io.BytesIO(b""), "rdf", None)


def test_a_graph_stays_as_it_is_if_its_document_is_cut_off(tmp_path: Path) -> None:
    text = f'{ROOT}<e:A rdf:about="http://e/new"/></rdf:RDF>'
    (tmp_path / "half.rdf").write_text(text.removesuffix("</rdf:RDF>"))
    (tmp_path / "whole.rdf").write_text(text)
    with wukongs.Engine() as engine:
        engine.update("INSERT DATA { <http://e/old> <http://e/p> 1 }")
        half, whole = ((tmp_path / f"{name}.rdf").as_uri() for name in ("half", "whole"))
        for strict in (False, True):
            with pytest.raises(DataError, match=r"half\.rdf, line 1: the document is cut off"):
                engine.load(tmp_path / "half.rdf", strict=strict)
        with pytest.raises(DataError, match="the document is cut off"):
            engine.update(f"DROP DEFAULT ; LOAD <{half}>")
        assert engine.query("SELECT ?s { ?s ?p ?o }").texts() == [("<http://e/old>",)]
        engine.update(f"DROP DEFAULT ; LOAD <{whole}>")
        assert engine.query("SELECT ?s { ?s ?p ?o }").texts() == [("<http://e/new>",)]


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_packed_file_without_its_end_is_an_error(ending: str, tmp_path: Path) -> None:
    text = b"<http://e/a> <http://e/p> <http://e/b> .\n" * 50
    packed = gzip.compress(text) if ending == "gz" else bytes(pa.compress(text, "zstd", asbytes=True))
    path = tmp_path / f"a.nt.{ending}"
    with wukongs.Engine() as engine:
        for length in range(len(packed)):
            path.write_bytes(packed[:length])
            with pytest.raises(DataError, match=r"cut short|Truncated|cannot read|expected a subject"):
                engine.load(path, strict=True)
        assert engine.stats()["stored_triples"] == 0
        path.write_bytes(packed)
        engine.load(path, strict=True)
        assert engine.stats()["stored_triples"] == 1


# --- entities ---------------------------------------------------------------------------------------------------------


def with_entities(declared: str, text: str) -> str:
    return f"{HEAD}<!DOCTYPE rdf:RDF [{declared}]>\n{ROOT}<e:A rdf:about='s'><e:p>{text}</e:p></e:A></rdf:RDF>"


@pytest.mark.parametrize(
    ("declared", "text", "expected"),
    [
        ('<!ENTITY a "x"><!ENTITY a "second">', "&a;", "x"),
        ("<!ENTITY a 'x\"&#38;&#x26;'>", "&a;", r"x\"&&"),
        ('<!ENTITY b "(&a;&lt;)"><!ENTITY a "x">', "&b;&b;", "(x<)(x<)"),
        ('<!-- <!ENTITY a "no"> --><?p <!ENTITY a "no"> ?><!ENTITY a "yes">', "&a;", "yes"),
        ('<!ELEMENT e ANY><!ENTITY % p "no"><!ENTITY out SYSTEM "file"><!ENTITY a "]>">', "&a;", "]>"),
        ('<!ENTITY lt "&#38;#60;"><!ENTITY a "é&#10;\n">', "&lt;&a;", r"<é\n\n"),
    ],
)
def test_entities_are_written_out(declared: str, text: str, expected: str) -> None:
    """XML 1.0, 4.2 (the first declaration binds), 4.4 (references in the value of an entity), 4.6 (&lt; and so on)."""
    for size in (1, 7, 1 << 20):
        file: io.BytesIO = Slow(with_entities(declared, text).encode(), size)  # type: ignore[assignment]
        lines = b"".join(parse_to_nquads(file, "rdf", "http://b/")).decode().splitlines()
        assert [line for line in lines if f'"{expected}" .' in line], lines


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ('<!ENTITY a "{x}">'.replace("{x}", "x" * 2000), "&a;" * 60),
        (
            '<!ENTITY a "{x}">'.replace("{x}", "x" * 500) + '<!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">',
            "&c;" * 15,
        ),
        ('<!ENTITY a "{x}">'.replace("{x}", "x" * 500) + '<!ENTITY b "' + "&a;" * 300 + '">', "none of them"),
    ],
)
def test_entities_that_blow_a_document_up_are_an_error(
    declared: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = with_entities(declared, text)
    assert triples_of(document) == 2
    monkeypatch.setattr(xml_terms, "ENTITY_BYTES", 100_000)
    monkeypatch.setattr(xml_terms, "ENTITY_FACTOR", 10)
    for size in (5, 1 << 20):
        with pytest.raises(DataError, match="found entities that make more than 10 times as much text"):
            triples_of(document, size=size)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (with_entities('<!ENTITY a "&b;"><!ENTITY b "&a;">', ""), "entity 'a', which leads to itself"),
        (with_entities('<!ENTITY a "&b;">', ""), "entity 'b', which the document does not declare"),
        (HEAD + "<!DOCTYPE a [<!ENTITY b 'c'>]>" * 2 + ROOT + "</rdf:RDF>", "document type that is not the only one"),
        (f"{ROOT}<!DOCTYPE a [<!ENTITY b 'c'>]></rdf:RDF>", "document type that is not the only one"),
        (f'<!doctype a [<!ENTITY b "c">]>{ROOT}</rdf:RDF>', "declaration that does not end, or is no document type"),
    ],
)
def test_document_types_that_are_refused(document: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        triples_of(document)
    assert caught.value.line


# --- nesting and tokens -----------------------------------------------------------------------------------------------


def elements(depth: int) -> str:
    """A document of this depth, its root counted."""
    pairs, odd = divmod(depth - 1, 2)
    return ROOT + "\n<e:A><e:p>" * pairs + "<e:A/>" * odd + "</e:p></e:A>" * pairs + "</rdf:RDF>"


def test_elements_nest_within_a_bound_in_linear_time() -> None:
    assert triples_of(elements(token_scan.ELEMENTS_MAX - 1)) > 1000
    took_s = []
    for depth in (5000, 20_000):
        began_s = time.process_time()
        with pytest.raises(DataError, match="at most 2,000 elements in each other") as caught:
            triples_of(elements(depth))
        assert caught.value.line == 1001
        took_s.append(time.process_time() - began_s)
    assert took_s[1] < 0.5 + 8 * took_s[0]


def test_bases_nest_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_terms, "ELEMENTS_MAX", 50)
    text = ROOT + '<e:A xml:base="a/"><e:p>' * 60 + "</e:p></e:A>" * 60 + "</rdf:RDF>"
    with pytest.raises(DataError, match="more than 50 elements with bases"):
        triples_of(text)


@pytest.mark.parametrize("format", ["ttl", "trig"])
def test_triple_terms_nest_within_a_bound(format: str) -> None:
    def nested(depth: int) -> str:
        return "<a> <b> 'x >> <<' . # >>\n<a> <b> " + "<<( <a> <b> " * depth + "1" + " )>>" * depth + " ."

    assert triples_of(nested(100), format) == 2
    with pytest.raises(DataError, match="at most 100 triple terms in each other") as caught:
        triples_of(nested(101), format)
    assert caught.value.line == 2


TOKENS = {
    "text of rdf": ("rdf", f"{ROOT}\n<e:A><e:p>{LONG}</e:p></e:A></rdf:RDF>", 2),
    "attribute of rdf": ("rdf", f'{ROOT}\n<e:A e:p="{LONG}"/></rdf:RDF>', 2),
    "comment of rdf": ("rdf", f"\n<!--{LONG}-->\n{ROOT}</rdf:RDF>", 2),
    "string of ttl": ("ttl", f'\n<a> <b> "c",\n"{LONG}" .', 3),
    "long string of ttl": ("ttl", f'\n<a> <b> """\n{LONG}\n""" .', 2),
    "IRI of trig": ("trig", f"\n\n<a> <b> <{LONG}> .", 3),
    "name of ttl": ("ttl", f"@prefix : <a> .\n<a> <b> :{LONG} .", 2),
    "comment of n3": ("n3", f"\n# {LONG}\n<a> <b> <c> .", 2),
    "string of jsonld": ("jsonld", f'{{"@id":"a",\n"http://p":\n"{LONG}"}}', 3),
    "number of jsonld": ("jsonld", f'{{"@id":"a",\n"http://p":{"1" * 900}}}', 2),
}


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_that_is_too_long_is_named_with_its_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    format, text, line = TOKENS[name]
    found = triples_of(text, format)
    monkeypatch.setattr(token_scan, "TOKEN_BYTES_MAX", 800)
    monkeypatch.setattr(token_scan, "JSON_TOKEN_BYTES_MAX", 800)
    for size in (1, 1 << 20):
        with pytest.raises(DataError, match="is longer than 0 MB") as caught:
            triples_of(text, format, size)
        assert (caught.value.file, caught.value.line) == ("doc", line)
    monkeypatch.setattr(token_scan, "TOKEN_BYTES_MAX", 1000)
    monkeypatch.setattr(token_scan, "JSON_TOKEN_BYTES_MAX", 1000)
    assert triples_of(text, format) == found


def test_a_string_of_17_mb_is_named_in_turtle() -> None:
    with pytest.raises(DataError, match="a token is longer than 16 MB") as caught:
        triples_of(b'<a> <b> "c" .\n<a> <b> "' + b"x" * (17 << 20) + b'" .', "ttl")
    assert caught.value.line == 2


def test_a_long_term_of_n_triples_is_a_malformed_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdf_files, "TOKEN_BYTES_MAX", 800)
    short = "".join(f'<http://e/{at}> <http://e/p> "{"x" * 500}" .\n' for at in range(3))
    (tmp_path / "a.nt").write_text(f'{short}<http://e/s> <http://e/p> "{LONG}" .\nno triple\n{short}')
    with wukongs.Engine() as engine:
        with pytest.raises(DataError, match=r"a\.nt, line 4, column 1: a term is longer"):
            engine.load(tmp_path / "a.nt", strict=True)
        engine.load(tmp_path / "a.nt")
        assert engine.stats()["stored_triples"] == 3


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_line_without_end_is_named(is_packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_pieces, "LINE_BYTES_MAX", 100_000)
    text = "<http://e/a> <http://e/p> <http://e/b> .\n" * 3 + "<" + "x" * 300_000
    path = tmp_path / ("a.nt.gz" if is_packed else "a.nt")
    path.write_bytes(gzip.compress(text.encode()) if is_packed else text.encode())
    pieces = rdf_files.read_rdf(path, on_malformed=None, chunk_bytes=50_000)
    with pytest.raises(DataError, match="a line is longer") as caught:
        list(pieces)
    assert caught.value.line == 4


def test_iris_that_blow_a_document_up_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdf_parser, "WRITTEN_BYTES", 100_000)
    monkeypatch.setattr(rdf_parser, "WRITTEN_FACTOR", 20)
    names = " .\n".join(f":a :b :c{at}" for at in range(300))
    assert triples_of(f"@prefix : <http://e/> .\n{names} .", "ttl") == 300
    with pytest.raises(DataError, match="more than 20 times as many bytes as the document"):
        triples_of(f"@prefix : <http://e/{'x' * 500}> .\n{names} .", "ttl")


def test_pieces_of_n_quads_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdf_parser, "PIECE_BYTES", 50_000)
    text = "".join(f'<a> <b{at}> "{"x" * 1000}" .\n' for at in range(300))
    pieces = list(parse_to_nquads(io.BytesIO(text.encode()), "ttl", "http://b/"))
    assert sum(piece.count(b"\n") for piece in pieces) == 300
    assert max(map(len, pieces)) < 80_000


# --- the kernels, beside expat and the tokens that a text is made of --------------------------------------------------


def random_markup(rng: random.Random, depth: int = 0) -> str:
    """The content of an element: well-formed, with signs where they mean nothing."""
    asides = (
        "<!-- a > ' -- b -->".replace("--  b", "b").replace(" -- ", " - "),
        "<![CDATA[ <a> ]] > ]]>",
        "<?p <a> ?>",
    )
    made = []
    for _ in range(rng.randrange(4)):
        kind = rng.randrange(5)
        attribute = rng.choice(("", " a='/>'", ' a="&lt;/"', " a='\"' b=\"'>\"", " a = 'http://e/' "))
        if kind == 0:
            made.append(rng.choice(("text ' \" /> ", "\n", "é")).replace("/>", "/"))
        elif kind == 1:
            made.append(rng.choice(asides))
        elif kind == 2 or depth > 5:
            made.append(f"<b{attribute}/>")
        else:
            made.append(f"<b{attribute}>{random_markup(rng, depth + 1)}</b\n>")
    return "".join(made)


def expat_depth(text: bytes) -> int:
    """How deeply a document nests, 0 if it is not whole."""
    depth = most = 0

    def start(name: str, attributes: object) -> None:
        nonlocal depth, most
        depth += 1
        most = max(most, depth)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    try:
        parser.Parse(text, True)
    except expat.ExpatError:
        return 0
    return most


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_compiled", [True, False])
def test_markup_is_whole_when_expat_has_it_whole(seed: int, is_compiled: bool) -> None:
    rng = random.Random(seed)
    scan = scan_markup if is_compiled else getattr(scan_markup, "py_func", scan_markup)
    text = f"<?xml version='1.0'?><!-- -><a> -->\n<r>{random_markup(rng)}</r>\n<!-- b -->".encode()
    depth = expat_depth(text)
    assert depth

    def scanned(data: bytes, depth_max: int) -> tuple[int, bool]:
        state, place = np.zeros(STATE_WIDTH, np.int64), 0
        while place < len(data):
            piece = data[place : place + rng.choice((1, 2, 5, 1000))]
            found, stop = scan(np.frombuffer(piece, np.uint8), state, depth_max, 1000, QUIET_IN_MARKUP)
            place += int(stop)
            if found != GOES_ON:
                return int(found), False
        return GOES_ON, bool(state[IS_CLOSED] and state[MODE] == PLAIN and not state[DEPTH])

    assert scanned(text, depth) == (GOES_ON, True)
    assert scanned(text, depth - 1)[0] == TOO_DEEP
    assert scanned(text + b"<r/>", depth)[0] == BEHIND_ROOT
    for length in range(0, len(text), 3):
        assert scanned(text[:length], depth) == (GOES_ON, expat_depth(text[:length]) > 0)


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_compiled", [True, False])
def test_tokens_are_as_long_as_they_were_made(seed: int, is_compiled: bool) -> None:
    rng = random.Random(seed)
    scan = scan_tokens if is_compiled else getattr(scan_tokens, "py_func", scan_tokens)
    inside = "".join(rng.choices(["a", "#", " ", "<<", ">>", "é", "\\'", '\\"', "\\\\"], k=30))
    kinds = [
        "<http://e/a#b>",
        "''",
        '""',
        f"'{inside}'",
        f'"{inside}"',
        f'"""{inside}\n"" \'\'\'"""',
        f"'''{inside}'''",
    ]
    kinds += ["# it's <<( \"comment\n", "a:b\\'c\\#d", "12.5e3", "<<(", ")>>", "(", ";", "[]", "@en", "<=", "<"]
    tokens = rng.choices(kinds, k=60)
    text = (" ".join(tokens) + " .").encode()
    depth, deepest = 0, 0
    for token in tokens:
        depth = max(depth + (token == "<<(") - (token == ")>>"), 0)
        deepest = max(deepest, depth)
    longest = max(len(token.encode()) for token in tokens)

    def scanned(depth_max: int, token_max: int) -> int:
        state, place = np.zeros(STATE_WIDTH, np.int64), 0
        while place < len(text):
            piece = text[place : place + rng.choice((1, 2, 5, 1000))]
            found, stop = scan(np.frombuffer(piece, np.uint8), state, depth_max, token_max, QUIET_IN_TOKENS)
            place += int(stop)
            if found != GOES_ON:
                return int(found)
        assert (state[MODE], state[DEPTH]) == (PLAIN, depth)
        return GOES_ON

    assert scanned(deepest, longest) == GOES_ON
    assert scanned(deepest, longest - 2) == TOO_LONG
    if deepest:
        assert scanned(deepest - 1, longest) == TOO_DEEP
