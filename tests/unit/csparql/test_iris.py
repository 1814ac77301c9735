"""IRI resolution: the examples of RFC 3986, section 5.4, and what is left alone."""

from __future__ import annotations

import pytest

from wukongs.csparql.iris import is_absolute, resolve

BASE = "http://a/b/c/d;p?q"
NORMAL_AND_ABNORMAL = {
    "g:h": "g:h",
    "g": "http://a/b/c/g",
    "./g": "http://a/b/c/g",
    "g/": "http://a/b/c/g/",
    "/g": "http://a/g",
    "//g": "http://g",
    "?y": "http://a/b/c/d;p?y",
    "g?y": "http://a/b/c/g?y",
    "#s": "http://a/b/c/d;p?q#s",
    "g#s": "http://a/b/c/g#s",
    "g?y#s": "http://a/b/c/g?y#s",
    ";x": "http://a/b/c/;x",
    "g;x": "http://a/b/c/g;x",
    "g;x?y#s": "http://a/b/c/g;x?y#s",
    "": "http://a/b/c/d;p?q",
    ".": "http://a/b/c/",
    "./": "http://a/b/c/",
    "..": "http://a/b/",
    "../": "http://a/b/",
    "../g": "http://a/b/g",
    "../..": "http://a/",
    "../../": "http://a/",
    "../../g": "http://a/g",
    "../../../g": "http://a/g",
    "../../../../g": "http://a/g",
    "/./g": "http://a/g",
    "/../g": "http://a/g",
    "g.": "http://a/b/c/g.",
    ".g": "http://a/b/c/.g",
    "g..": "http://a/b/c/g..",
    "..g": "http://a/b/c/..g",
    "./../g": "http://a/b/g",
    "./g/.": "http://a/b/c/g/",
    "g/./h": "http://a/b/c/g/h",
    "g/../h": "http://a/b/c/h",
    "g;x=1/./y": "http://a/b/c/g;x=1/y",
    "g;x=1/../y": "http://a/b/c/y",
    "g?y/./x": "http://a/b/c/g?y/./x",
    "g?y/../x": "http://a/b/c/g?y/../x",
    "g#s/./x": "http://a/b/c/g#s/./x",
    "g#s/../x": "http://a/b/c/g#s/../x",
    "http:g": "http:g",
}


@pytest.mark.parametrize(("reference", "resolved"), NORMAL_AND_ABNORMAL.items())
def test_examples_of_the_rfc(reference: str, resolved: str) -> None:
    assert resolve(BASE, reference) == resolved


@pytest.mark.parametrize(
    ("base", "reference", "resolved"),
    [
        ("http://a", "b", "http://a/b"),
        ("urn:x:y", "z", "urn:z"),
        ("http://a/b?c/d", "e", "http://a/e"),
        ("http://a/", "é/b c", "http://a/é/b c"),
        ("file:///a/b", "c", "file:///a/c"),
        ("http://a/b", "http://c/../d", "http://c/../d"),
        (None, "Tweet_Stream", "Tweet_Stream"),
        (None, "../a", "../a"),
    ],
)
def test_more_bases(base: str | None, reference: str, resolved: str) -> None:
    assert resolve(base, reference) == resolved


def test_absolute_means_a_scheme() -> None:
    assert is_absolute("urn:x")
    assert not is_absolute("//a/b")
    assert not is_absolute("a/b:c")
    assert not is_absolute("1a:b")
