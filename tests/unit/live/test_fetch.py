"""LOAD over HTTP: from allowed places only, in bounds of time and size, by media type, extension and coding."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

import wukongs
from tests.engine_helpers import rows
from tests.unit.conftest import Ran
from wukongs.live.fetch import is_allowed
from wukongs.live.update_documents import path_of

QUADS = "SELECT ?g ?s ?p ?o { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
TURTLE = b"@prefix : <http://ex/> . :a :p 1 . <x> :p 2 .\n"
TRIPLE = b"<http://ex/a> <http://ex/p> 'x' .\n".replace(b"'", b'"')


@dataclass
class Site:
    """A server on this machine. answers: path -> (status, headers, body); asked: (path, Accept header)."""

    place: str
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def put(self, path: str, body: bytes, status: int = 200, **headers: str) -> str:
        """Answer a path with this; return its IRI."""
        self.answers[f"/{path}"] = status, {name.replace("_", "-"): value for name, value in headers.items()}, body
        return self.place + path


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append((self.path, self.headers["Accept"]))
            status, headers, body = found.answers.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                if name != "delay":
                    self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            pause_s = float(headers.get("delay", "0"))
            for at in range(0, len(body), 20 if pause_s else 1 << 20):
                time.sleep(pause_s)
                try:
                    self.wfile.write(body[at : at + (20 if pause_s else 1 << 20)])
                except OSError:
                    return

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Site(f"http://127.0.0.1:{server.server_port}/")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def engine_for(*places: str, **options: int) -> wukongs.Engine:
    return wukongs.Engine(settings=wukongs.Settings(load_from=places, **options))


def quads(engine: wukongs.Engine) -> list[str]:
    return [" ".join(row) for row in rows(engine.query(QUADS))]


def refusal(engine: wukongs.Engine, document: str) -> str:
    """What LOAD of a document says, without the document's name; nothing is stored, also with SILENT."""
    with pytest.raises(wukongs.DataError) as caught:
        engine.update(f"INSERT DATA {{ <http://ex/a> <http://ex/p> 1 }} ; LOAD <{document}>")
    assert caught.value.file == document
    engine.update(f"LOAD SILENT <{document}>")
    assert quads(engine) == []
    return caught.value.message


# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_document_by_its_media_type(site: Site) -> None:
    document = site.put("dir/data", TURTLE, Content_Type="Text/Turtle; charset=utf-8")
    with engine_for(site.place) as engine:
        assert engine.update(f"LOAD <{document}#part> INTO GRAPH <http://ex/g>") == 1
        assert quads(engine) == ["g a p 1", f"g {site.place}dir/x p 2"]
    assert [path for path, _ in site.asked] == ["/dir/data"]
    assert site.asked[0][1].startswith("text/turtle, application/n-triples, ")


@pytest.mark.parametrize(
    ("name", "media_type", "body"),
    [
        ("x.nt", "text/plain", TRIPLE),
        ("x.nt", "", TRIPLE),
        ("x.nt?all=1", "application/octet-stream", TRIPLE),
        ("x.ttl.gz", "application/gzip", gzip.compress(TRIPLE, mtime=0)),
        ("x.ttl", "application/n-triples", TRIPLE),
        ("%C3%A9", "application/trig", TRIPLE),
        ("x", "application/ld+json", b'{"@id": "http://ex/a", "http://ex/p": "x"}'),
        (
            "x",
            "application/rdf+xml",
            b'<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://ex/">'
            b'<r:Description r:about="http://ex/a"><p>x</p></r:Description></r:RDF>',
        ),
    ],
)
def test_by_extension_where_the_media_type_says_nothing(site: Site, name: str, media_type: str, body: bytes) -> None:
    document = site.put(name, body, **({"Content_Type": media_type} if media_type else {}))
    with engine_for(site.place) as engine:
        engine.update(f"LOAD <{document.replace('%C3%A9', 'é')}>")
        assert quads(engine) == [" a p x"]


def test_content_codings(site: Site) -> None:
    packed = {
        "gzip": gzip.compress(TRIPLE, mtime=0),
        "x-gzip": gzip.compress(gzip.compress(TRIPLE, mtime=0), mtime=0),
        "zstd": pa.compress(TRIPLE, "zstd", asbytes=True),
        "identity": TRIPLE,
    }
    for coding, body in packed.items():
        with engine_for(site.place) as engine:
            engine.update(f"LOAD <{site.put('x.nt', body, Content_Encoding=coding)}>")
            assert quads(engine) == [" a p x"], coding


def test_a_redirect_to_an_allowed_place_says_what_relative_iris_mean(site: Site) -> None:
    site.put("new/data.ttl", TURTLE)
    document = site.put("old", b"", 302, Location="/new/data.ttl")
    with engine_for(site.place) as engine:
        engine.update(f"LOAD <{document}>")
        assert quads(engine) == [" a p 1", f" {site.place}new/x p 2"]


def test_a_large_document_comes_in_pieces_and_is_stored_at_once(site: Site) -> None:
    body = b"".join(b"<http://ex/s%d> <http://ex/p> _:b .\n" % number for number in range(100_000))
    with engine_for(site.place) as engine:
        assert engine.update(f"LOAD <{site.put('x.nt', body)}>") == 1
        assert engine.stats()["stored_triples"] == 100_000
        assert rows(engine.query("SELECT (COUNT(DISTINCT ?o) AS ?n) { ?s ?p ?o }")) == [("1",)]


def test_it_is_not_fetched_again_when_the_log_is_replayed(site: Site, tmp_path: Path) -> None:
    settings = wukongs.Settings(load_from=(site.place,))
    with wukongs.Engine(tmp_path, settings=settings) as engine:
        engine.update(f"LOAD <{site.put('x.ttl', TURTLE)}>")
        before = quads(engine)
    with wukongs.Engine(tmp_path) as engine:
        assert quads(engine) == before
    assert len(site.asked) == 1


# --- what is refused --------------------------------------------------------------------------------------------------


def test_only_what_begins_like_an_allowed_place(site: Site) -> None:
    document = site.put("private/x.ttl", TURTLE)
    with engine_for(f"{site.place}public/", "https://ex.org/") as engine:
        assert refusal(engine, document) == (
            f"LOAD reads files of this machine, and the setting load_from allows what begins with {site.place}public/ "
            "or https://ex.org/. Allow it there (WUKONGS_LOAD_FROM, or --load-from of `wukongs update`), or save the "
            "document and load file:///..."
        )
    assert site.asked == []


@pytest.mark.parametrize(
    "document",
    [
        "http://h/public",
        "http://h/public/../private/x",
        "http://h/public/%2e%2E/private/x",
        "http://h/public/a/%2e%2e%2fprivate",
        "http://h/public/..\\private",
        "http://h/public/./x",
        "https://h/public/x",
        "http://h.evil.org/public/x",
        "http://h@evil.org/public/x",
        "http://h:80/public/x",
        "file:///public/x",
    ],
)
def test_ways_around_a_place(document: str) -> None:
    assert not is_allowed(document, ["http://h/public/"])
    assert is_allowed("http://h/public/a..b/.x?y=../z", ["http://h/public/"])


def test_a_redirect_elsewhere_is_not_followed(site: Site) -> None:
    elsewhere = site.put("private/x.ttl", TURTLE)
    document = site.put("public/x.ttl", b"", 301, Location=elsewhere)
    with engine_for(f"{site.place}public/") as engine:
        message = f"redirected to {elsewhere}, which the setting load_from does not allow"
        assert refusal(engine, document) == message
        for target in ("file:///etc/hostname", "ftp://127.0.0.1/x"):
            site.put("public/x.ttl", b"", 301, Location=target)
            assert target in refusal(engine, document)
    assert {path for path, _ in site.asked} == {"/public/x.ttl"}


def test_redirects_in_a_circle_end(site: Site) -> None:
    with engine_for(site.place) as engine:
        document = site.put("x", b"", 302, Location="/x")
        assert "the server says 302 The HTTP server returned a redirect error" in refusal(engine, document)


def test_what_the_server_refuses(site: Site) -> None:
    with engine_for(site.place) as engine:
        assert refusal(engine, f"{site.place}none.ttl") == "the server says 404 Not Found"
        assert refusal(engine, site.put("broken.ttl", b"no", 500)) == "the server says 500 Internal Server Error"


def test_nobody_there() -> None:
    with engine_for("http://127.0.0.1:1/") as engine:
        assert refusal(engine, "http://127.0.0.1:1/x.ttl") == "cannot be fetched: Connection refused"


def test_no_known_format(site: Site) -> None:
    with engine_for(site.place) as engine:
        assert refusal(engine, site.put("x", b"<html>", Content_Type="text/html")) == (
            "no RDF format given, and the name has no extension: expected one of nt, nq, ttl, trig, n3, rdf, jsonld; "
            "it comes with Content-Type text/html"
        )
        assert refusal(engine, site.put("x.doc", b"")).endswith("; it comes with no Content-Type")
        coded = site.put("x.nt", b"", Content_Encoding="br")
        assert refusal(engine, coded) == "comes in the content coding 'br': expected gzip, zstd or none"


@pytest.mark.parametrize("name", ["x.nt", "x.ttl"])
def test_a_malformed_document_is_named_with_its_line(site: Site, name: str) -> None:
    document = site.put(name, TRIPLE + b"no triple\n")
    with engine_for(site.place) as engine, pytest.raises(wukongs.DataError) as caught:
        engine.update(f"LOAD <{document}>")
    assert (caught.value.file, caught.value.line) == (document, 2)


@pytest.mark.parametrize("name", ["x.nt", "x.ttl"])
def test_too_much_as_it_comes_and_decompressed(site: Site, name: str) -> None:
    body = TRIPLE * 1000
    limited = "more than 5,000 bytes, which the setting fetch_bytes_max allows"
    with engine_for(site.place, fetch_bytes_max=5_000) as engine:
        assert refusal(engine, site.put(name, body)) == limited
        assert refusal(engine, site.put(name, gzip.compress(body))) == limited
        assert refusal(engine, site.put(name, gzip.compress(body), Content_Encoding="gzip")) == limited
        assert refusal(engine, site.put(name, gzip.compress(gzip.compress(body)), Content_Encoding="gzip")) == limited
    with engine_for(site.place, fetch_bytes_max=len(body)) as engine:
        engine.update(f"LOAD <{site.put(name, body)}>")
        assert quads(engine) == [" a p x"]


@pytest.mark.parametrize("name", ["x.nt", "x.ttl"])
def test_too_slow_from_the_start_or_bit_by_bit(site: Site, name: str) -> None:
    with engine_for(site.place, fetch_timeout_ms=200) as engine:
        message = "cannot be fetched within fetch_timeout_ms = 200"
        assert refusal(engine, site.put(name, TRIPLE, delay="1")) == message
        assert refusal(engine, site.put(name, TRIPLE * 10, delay="0.05")) == message


@pytest.mark.parametrize("name", ["x.nt", "x.ttl"])
def test_cut_short(site: Site, name: str) -> None:
    with engine_for(site.place) as engine:
        document = site.put(name, TRIPLE, Content_Length="1034")
        assert refusal(engine, document) == "cut short: 1,000 bytes have not come. Load it again"


def test_a_document_named_by_from_is_not_fetched(site: Site) -> None:
    document = site.put("x.ttl", TURTLE)
    with engine_for(site.place) as engine:
        assert rows(engine.query(f"SELECT * FROM <{document}> {{ ?s ?p ?o }}")) == []
    assert site.asked == []


# --- the command line -------------------------------------------------------------------------------------------------


def test_the_command_allows_it_by_name(site: Site, ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("update", "--data-dir", str(tmp_path / "db"), f"LOAD <{site.put('x.ttl', TURTLE)}>")
    status, _, err = ran(*command)
    assert (status, "the setting load_from allows nothing else" in err) == (1, True)
    assert ran(*command, "--load-from", "http://ex.org/", "--load-from", site.place)[0] == 0
    monkeypatch.setenv("WUKONGS_LOAD_FROM", site.place)
    assert ran(*command)[0] == 0
    assert ran(*command, "--load-from", "http://ex.org/")[0] == 1
    assert "load_from = ('x',): expected a tuple of how IRIs begin" in ran(*command, "--load-from", "x")[2]


def test_paths_of_file_iris() -> None:
    assert path_of("file:///a%20b/c.ttl") == path_of("file://localhost/a%20b/c.ttl") == Path("/a b/c.ttl")
    assert path_of("a%20b.ttl") == Path("a b.ttl")
