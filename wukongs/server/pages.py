"""The console at `/`: its page and files.

The page may run nothing but these files, and ask no other server: its Content-Security-Policy says so. The scripts
import each other as they are; those of CodeMirror import each other by the names of their packages, for which the page
has a map. Without them (tools/fetch_console.py) the editor is a plain field.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from functools import cache
from pathlib import Path
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).with_name("console")
PREFIX = "/console/"
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}' 'self'; style-src 'nonce-{nonce}' 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"Referrer-Policy": "no-referrer"}


class _File(NamedTuple):
    body: bytes
    media_type: str
    tag: str


async def page(request: Request) -> Response:
    """Answer with the console."""
    nonce = secrets.token_urlsafe(16)
    text = (FOLDER / "index.html").read_text("utf-8").replace("IMPORTS", _imports()).replace("NONCE", nonce)
    headers = {**_HEADERS, "Content-Security-Policy": _POLICY.format(nonce=nonce), "Cache-Control": "no-store"}
    return Response(text, headers=headers, media_type="text/html")


async def file(request: Request) -> Response:
    """Answer with a file of the console."""
    found = _files().get(request.scope["path"].removeprefix(PREFIX))
    if found is None:
        raise HTTPException(404)
    headers = {**_HEADERS, "ETag": found.tag, "Cache-Control": "no-cache"}
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)


@cache
def _files() -> dict[str, _File]:
    """Return all files of the console by their paths: nothing else is ever sent."""
    found = {}
    for path in FOLDER.rglob("*"):
        if path.is_file() and path.suffix in _TYPES and not path.name.startswith("."):
            body = path.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[path.relative_to(FOLDER).as_posix()] = _File(body, _TYPES[path.suffix], tag)
    return found


@cache
def _imports() -> str:
    """Return the map from the names of packages to their modules."""
    vendor = "vendor/"
    packages = (
        path.removeprefix(vendor).removesuffix("/index.js") for path in sorted(_files()) if path.startswith(vendor)
    )
    names = [name for name in packages if not name.endswith("LICENSE")]
    return json.dumps({"imports": {name: f"./console/{vendor}{name}/index.js" for name in names}})


def forget() -> None:
    """Read the files again when they are next asked for."""
    _files.cache_clear()
    _imports.cache_clear()
