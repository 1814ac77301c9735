"""Fetching the documents that LOAD may read from elsewhere: over HTTP, from allowed places only, within bounds.

* An IRI is allowed if it begins like one of the setting load_from, to the letter, and has no `.` or `..` to leave that
  place by. A redirect is asked again; no proxy, cookie or password takes part.
* It is read as it comes, in pieces, within bounds of time and size: nothing of it is kept on the disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urldefrag, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
)

from wukongs.errors import DataError
from wukongs.settings import Settings
from wukongs.store.rdf_files import decompressed, find_format

_MEDIA_TYPES = {
    "text/turtle": "ttl",
    "application/n-triples": "nt",
    "application/n-quads": "nq",
    "application/trig": "trig",
    "text/n3": "n3",
    "application/rdf+xml": "rdf",
    "application/ld+json": "jsonld",
}
_ACCEPTED = ", ".join([*_MEDIA_TYPES, "*/*;q=0.1"])
_CODINGS = ("", "identity", "gzip", "x-gzip", "zstd")
_STAYS_AS_IT_IS = "/:?#[]@!$&'()*+,;=%"


def is_allowed(document: str, places: Sequence[str]) -> bool:
    """Tell whether a document lies in one of the places: IRIs, how those of its documents begin."""
    segments = unquote(urlsplit(document).path).replace("\\", "/").split("/")
    return document.startswith(tuple(places)) and "." not in segments and ".." not in segments


class FetchedDocument:
    """A document on its way: a binary file that is read once. format: of its text; base: what IRIs in it are relative
    to, its own IRI."""

    def __init__(self, response: HTTPResponse, document: str, settings: Settings) -> None:
        """Raises DataError: nothing says its format; a content coding that we have not asked for."""
        self.name = document
        self.base = response.url
        media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        self.format = _MEDIA_TYPES.get(media_type) or _format_of(self.base, document, media_type)
        self._response = response
        self._settings = settings
        self._size = 0
        self._waited_s = 0.0

    def read(self, size: int) -> bytes:
        """Return what has come, at most so much; empty at the end. Raises DataError (cut short, too much, too slow)."""
        since_s = time.monotonic()
        try:
            data = self._response.read1(size)
        except (OSError, HTTPException) as error:
            raise _failed(self.name, error, self._settings) from error
        self._waited_s += time.monotonic() - since_s
        self._size += len(data)
        if not data and self._response.length:
            raise DataError(f"cut short: {self._response.length:,} bytes have not come. Load it again", self.name)
        if self._size > self._settings.fetch_bytes_max:
            raise DataError(too_large(self._settings), self.name)
        if self._waited_s * 1000 > self._settings.fetch_timeout_ms:
            raise _failed(self.name, TimeoutError(), self._settings)
        return data


@contextmanager
def fetched(document: str, settings: Settings) -> Iterator[tuple[IO[bytes], FetchedDocument]]:
    """Ask for an allowed document; give its bytes, as they come and without their content coding, and what is known of
    it. Raises DataError: refused, not there, too slow, redirected to where nothing is allowed, of no known format."""
    opener = OpenerDirector()
    for handler in (HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor):
        opener.add_handler(handler())
    opener.add_handler(_Redirects(document, settings.load_from))
    headers = {"Accept": _ACCEPTED, "Accept-Encoding": "gzip, zstd", "User-Agent": "wukongs"}
    try:
        request = Request(quote(urldefrag(document)[0], safe=_STAYS_AS_IT_IS), headers=headers)
        response: HTTPResponse = opener.open(request, timeout=settings.fetch_timeout_ms / 1000)
    except HTTPError as error:
        error.close()
        raise DataError(f"the server says {error.code} {error.reason}", document) from error
    except (OSError, HTTPException, ValueError) as error:
        raise _failed(document, error, settings) from error
    with response:
        coding = response.headers.get("Content-Encoding", "").strip().lower()
        if coding not in _CODINGS:
            raise DataError(f"comes in the content coding {coding!r}: expected gzip, zstd or none", document)
        found = FetchedDocument(response, document, settings)
        source: IO[bytes] = found  # type: ignore[assignment]  # all that is asked of it is read(size)
        yield decompressed(source, document) if coding in _CODINGS[2:] else source, found


def too_large(settings: Settings) -> str:
    return f"more than {settings.fetch_bytes_max:,} bytes, which the setting fetch_bytes_max allows"


class _Redirects(HTTPRedirectHandler):
    def __init__(self, document: str, places: Sequence[str]) -> None:
        self._document = document
        self._places = places

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if not is_allowed(newurl, self._places):
            fp.close()
            raise DataError(f"redirected to {newurl}, which the setting load_from does not allow", self._document)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _format_of(base: str, document: str, media_type: str) -> str:
    try:
        return find_format(urlsplit(base).path)
    except DataError as error:
        found = f"Content-Type {media_type}" if media_type else "no Content-Type"
        raise DataError(f"{error.message}; it comes with {found}", document) from None


def _failed(document: str, error: Exception, settings: Settings) -> DataError:
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, TimeoutError):
        return DataError(f"cannot be fetched within fetch_timeout_ms = {settings.fetch_timeout_ms}", document)
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return DataError(f"cannot be fetched: {text}", document)
