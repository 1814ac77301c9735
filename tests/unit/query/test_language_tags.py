"""Language tags: compared without case (RDF 1.1 Concepts, 3.3), shown with the case that RFC 5646, 2.1.1 recommends."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import wukongs
from tests.unit.server.asking import served
from wukongs.query.terms.shown_texts import ShownTexts, shown, shown_bytes
from wukongs.store.canonical import shown_tag, to_ntriples
from wukongs.store.dictionary import join_texts

P, Q = "http://e/p", "http://e/q"
TAGS = [  # written, shown: the examples of RFC 5646, 2.1.1 and appendix A among them
    ("en-GB", "en-GB"),
    ("EN-gb", "en-GB"),
    ("en", "en"),
    ("EN", "en"),
    ("gsw", "gsw"),
    ("mn-cYRL-mn", "mn-Cyrl-MN"),
    ("en-ca-x-CA", "en-CA-x-ca"),
    ("SGN-be-fr", "sgn-BE-FR"),
    ("AZ-latn-X-LATN", "az-Latn-x-latn"),
    ("zh-hant-tw", "zh-Hant-TW"),
    ("sl-ROZAJ-biske-1994", "sl-rozaj-biske-1994"),
    ("es-419", "es-419"),
    ("de-1996", "de-1996"),
    ("I-AMI", "i-ami"),
    ("x-AB-CDEF", "x-ab-cdef"),
    ("en-u-CA-Islamic", "en-u-ca-islamic"),
    ("sr-latn", "sr-Latn"),
    ("zh-cmn-Hans-CN", "zh-cmn-Hans-CN"),
]


@pytest.mark.parametrize(("written", "expected"), TAGS)
def test_the_case_of_a_tag(written: str, expected: str) -> None:
    for tag in (written, written.lower(), written.upper(), expected):
        assert shown_tag(tag) == expected
        assert shown_tag(f"{tag}--ltr") == f"{expected}--ltr"
    assert to_ntriples(f'"a@b-cd"@{written.lower()}') == f'"a@b-cd"@{expected}'


class Texts:
    """A reader over a list of texts: an id is a place in it."""

    def __init__(self, texts: list[str]) -> None:
        self.held = texts

    def texts(self, ids: np.ndarray) -> list[str]:
        return [self.held[number] for number in ids.tolist()]

    def gather(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return join_texts(self.texts(ids))


def test_texts_and_bytes_are_shown_alike() -> None:
    plain = [
        '"a"',
        '"a@en-gb"',
        "<http://e/@en-gb>",
        "_:sab-cd",
        '"1"^^<http://e/x-ab>',
        '"é-aa"@en',
        '""@gsw',
        '"@"@a',
    ]
    tagged = [f'"{text}"@{tag.lower()}' for tag, _ in TAGS for text in ("", "a", "é@fr-fr", '"', "@")]
    nested = [f"(<http://e/s> <{P}> {text})" for text in (*plain[:3], *tagged)]
    nested += [f"(<http://e/s> <{P}> {text})" for text in nested[:5]]
    everything = [*plain, *tagged, *nested, *(f'"x"@{tag.lower()}--rtl' for tag, _ in TAGS)]
    reader = ShownTexts(Texts(everything))
    ids = np.arange(len(everything))
    expected = [shown(text) for text in everything]
    assert reader.texts(ids) == expected
    text, offsets = reader.gather(ids)
    assert [text[a:b].tobytes().decode() for a, b in itertools.pairwise(offsets.tolist())] == expected
    assert [one.lower() for one in expected] == [one.lower() for one in everything]
    assert expected[: len(plain)] == plain
    assert expected[len(plain)] == '""@en-GB'
    assert list(map(shown, expected)) == expected
    for some in ([], plain):
        before, offsets = join_texts(some)
        assert shown_bytes(before, offsets) is before


DATA = f"""
<http://e/a> <{P}> "colour"@en-GB .
<http://e/b> <{P}> "colour"@EN-gb .
<http://e/c> <{Q}> "顏色"@ZH-HANT-tw .
<http://e/d> <{Q}> "plain" , "hi"@en .
"""
COLOUR = '"colour"@en-GB'


def test_what_was_shown_goes_back_in_as_the_same_term() -> None:
    with wukongs.Engine() as engine:
        engine.update(f"INSERT DATA {{ {DATA} }}")
        before = engine.query("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }").texts()
        for s, p, o in engine.query("CONSTRUCT WHERE { ?s ?p ?o }").triples():
            engine.update(f"INSERT DATA {{ {s} {p} {o} }}")
        assert engine.query("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }").texts() == before


def test_windows_and_streams_that_queries_make() -> None:
    with wukongs.Engine() as engine:
        stream = engine.stream("http://e/s", batch_ms=1000, timing=True)
        made = engine.register(
            f"REGISTER STREAM <http://e/made> AS CONSTRUCT {{ ?s <{Q}> ?o }} "
            f"FROM STREAM <http://e/s> [RANGE 1s STEP 1s] WHERE {{ ?s <{P}> ?o }}"
        )
        reader = engine.register(
            f"REGISTER QUERY r AS SELECT ?o ?l FROM STREAM <http://e/made> [RANGE 1s STEP 1s] "
            f'WHERE {{ ?s <{Q}> ?o , "colour"@EN-gb BIND(LANG(?o) AS ?l) }}'
        )
        stream.push([("<http://e/a>", f"<{P}>", '"colour"@EN-gb', 500)])
        stream.advance(2000)
        engine.settle()
        assert next(window.texts() for window in made.results(timeout_s=0)) == [("<http://e/a>", f"<{Q}>", COLOUR)]
        assert next(window.texts() for window in reader.results(timeout_s=0)) == [(COLOUR, '"en-GB"')]


def test_a_folder_is_read_again(tmp_path: Path) -> None:
    """What is stored has tags in lower case, as ever: folders of older versions hold the same."""
    with wukongs.Engine(tmp_path) as engine:
        engine.update(f"INSERT DATA {{ {DATA} }}")
    for _ in range(2):
        with wukongs.Engine(tmp_path) as engine:
            assert {text for (text,) in engine.query(f"SELECT ?o {{ ?s <{P}> ?o }}").texts()} == {COLOUR}
            assert len(engine.query(f'SELECT ?s {{ ?s <{P}> "colour"@EN-GB }}')) == 2
            assert engine.dump(tmp_path.with_name("all.nt")) == 5
    assert tmp_path.with_name("all.nt").read_text("utf-8").count(COLOUR) == 2
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"@en-gb" in held
    assert b"@en-GB" not in held


def test_over_http(tmp_path: Path) -> None:
    with wukongs.Engine() as engine, served(engine) as client:
        engine.update(f"INSERT DATA {{ {DATA} }}")
        rows = client.get(f"SELECT ?o {{ ?s <{P}> ?o }}", accept="application/sparql-results+json").json
        assert {one["o"]["xml:lang"] for one in rows["results"]["bindings"]} == {"en-GB"}
        for accept in ("text/turtle", "application/n-triples", "application/rdf+xml", "application/ld+json"):
            body = client.get(f"CONSTRUCT WHERE {{ ?s <{P}> ?o }}", accept=accept).body.decode()
            assert "en-GB" in body, accept
            assert "en-gb" not in body, accept
        quoted = 'a"@en-gb xml:lang="en-gb" "@language":"en-gb" \\\\'
        escaped = quoted.replace("\\", "\\\\").replace('"', '\\"')
        engine.update(f'INSERT DATA {{ GRAPH <http://e/g> {{ <http://e/x> <{P}> "{escaped}" , "{escaped}"@de-at }} }}')
        for accept in ("application/trig", "application/n-quads"):
            body = client.store("GET", accept=accept).text
            assert body.count("@de-AT") == 1, accept
            with wukongs.Engine() as other:
                path = tmp_path / ("all.trig" if "trig" in accept else "all.nq")
                path.write_text(body, "utf-8")
                other.load(path)
                asked = f"SELECT (STR(?o) AS ?t) {{ GRAPH <http://e/g> {{ ?s <{P}> ?o }} }}"
                assert [str(t) for (t,) in other.query(asked)] == [quoted] * 2


def test_a_triple_term_and_a_base_direction() -> None:
    with wukongs.Engine() as engine:
        engine.update(
            f'INSERT DATA {{ <http://e/a> <{P}> "x"@AR-eg--rtl . '
            f'<http://e/b> <{P}> <<( <http://e/s> <{P}> "x"@en-gb )>> }}'
        )
        result = engine.query(f"SELECT ?o {{ ?s <{P}> ?o }} ORDER BY ?s")
        assert [text for (text,) in result.texts()] == ['"x"@ar-EG--rtl', f'(<http://e/s> <{P}> "x"@en-GB)']
        assert '"xml:lang": "ar-EG", "its:dir": "rtl"' in result.serialize("json")
        assert "@en-GB" in result._repr_html_()
        assert '"x"@en-GB )>>' in result.serialize("tsv")
