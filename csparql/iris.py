"""IRI references and how they resolve against a base (RFC 3986, section 5.2, strict)."""

from __future__ import annotations

import re
from typing import NamedTuple

_PARTS = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


class _Parts(NamedTuple):
    scheme: str | None
    authority: str | None
    path: str
    query: str | None
    fragment: str | None


def is_absolute(iri: str) -> bool:
    """Whether an IRI names its scheme."""
    return _split(iri).scheme is not None


def resolve(base: str | None, reference: str) -> str:
    """Resolve a reference against a base. With a scheme of its own, or without a base, it stays as it is to the letter.

    (RFC 3986 would also take dot segments out of a reference with a scheme; terms are never changed here.)
    """
    if base is None:
        return reference
    given = _split(reference)
    if given.scheme is not None:
        return reference
    start = _split(base)
    if given.authority is not None:
        return _build(start.scheme, given.authority, _remove_dot_segments(given.path), given.query, given.fragment)
    if not given.path:
        query = start.query if given.query is None else given.query
        return _build(start.scheme, start.authority, start.path, query, given.fragment)
    path = given.path if given.path.startswith("/") else _merge(start, given.path)
    return _build(start.scheme, start.authority, _remove_dot_segments(path), given.query, given.fragment)


def _split(iri: str) -> _Parts:
    match = _PARTS.fullmatch(iri)
    assert match is not None, iri
    scheme, authority, path, query, fragment = match.groups()
    return _Parts(scheme, authority, path or "", query, fragment)


def _build(scheme: str | None, authority: str | None, path: str, query: str | None, fragment: str | None) -> str:
    return "".join(
        (
            "" if scheme is None else f"{scheme}:",
            "" if authority is None else f"//{authority}",
            path,
            "" if query is None else f"?{query}",
            "" if fragment is None else f"#{fragment}",
        )
    )


def _merge(base: _Parts, path: str) -> str:
    if base.authority is not None and not base.path:
        return "/" + path
    return base.path[: base.path.rfind("/") + 1] + path


def _remove_dot_segments(path: str) -> str:
    """Take `.` and `..` out of a path (RFC 3986, section 5.2.4)."""
    if "." not in path:
        return path
    done = ""
    while path:
        if path.startswith(("../", "./")):
            path = path[path.index("/") + 1 :]
        elif path in (".", ".."):
            path = ""
        elif path.startswith("/./") or path == "/.":
            path = "/" + path[3:]
        elif path.startswith("/../") or path == "/..":
            path = "/" + path[4:]
            done = done[: max(done.rfind("/"), 0)]
        else:
            end = path.find("/", 1)
            end = len(path) if end < 0 else end
            done, path = done + path[:end], path[end:]
    return done
