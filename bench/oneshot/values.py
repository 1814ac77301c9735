"""Queries over values, with their data: dates and times, large integers, lists of constants, filters over products.

The data are made here, from a seed. Items have date-times with and without zones, some with a fraction; dates; years;
integers beyond 2^63, which no id carries; a text and a code. Days and words are small lists of their own, to be
compared each with each.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator

from wukongs.bench.oneshot.queries import OneShotQuery
from wukongs.csparql.terms import XSD

NAMESPACE = "http://example.org/values/"
ITEMS, QUICK_ITEMS = 20_000, 200
PREFIXES = f"PREFIX : <{NAMESPACE}>\nPREFIX xsd: <{XSD}>\n"
_ZONES = ("", "", "Z", "Z", "+05:30", "-11:00", "+14:00")
_FRACTIONS = ("", "", "", ".5", ".25", ".125", ".654321")
_SYLLABLES = ("ka", "ro", "mi", "lu", "ten", "sar", "vo", "ni", "pel", "gha")
_BEGIN = datetime.datetime(1995, 1, 1)
_GAP = datetime.datetime(2001, 7, 1)
"""Nothing begins a day before or after, so that pyoxigraph can compare date-times with it, zone or none."""


def value_lines(items: int) -> bytes:
    """Return the data as N-Triples."""
    return "".join(_triples(random.Random(38), items)).encode()


def _triples(source: random.Random, items: int) -> Iterator[str]:
    for number in range(items):
        item = f"item{number}"
        begin = _GAP
        while abs(begin - _GAP) < datetime.timedelta(days=1):
            begin = _BEGIN + datetime.timedelta(seconds=source.randrange(30 * 365 * 86400))
        end = begin + datetime.timedelta(seconds=source.randrange(10 * 86400))
        zone, fraction = source.choice(_ZONES), source.choice(_FRACTIONS)
        yield _triple(item, "begins", f"{begin.isoformat()}{fraction}{zone}", "dateTime")
        yield _triple(item, "ends", f"{end.isoformat()}{zone}", "dateTime")
        yield _triple(item, "day", begin.date().isoformat(), "date")
        yield _triple(item, "year", str(begin.year), "gYear")
        yield _triple(item, "number", str(source.randrange(1000)), "integer")
        yield _triple(item, "large", str(source.randrange(2**63 // items)), "integer")
        yield _triple(item, "larger", str(2**61 + source.randrange(2**61)), "integer")
        yield _triple(item, "text", f"{_word(source, 4)} of {_word(source, 5)}", "string")
        yield f"<{NAMESPACE}{item}> <{NAMESPACE}kind> <{NAMESPACE}kind{source.randrange(200)}> .\n"
    for number in range(items // 20):
        day = _BEGIN + datetime.timedelta(days=source.randrange(30 * 365))
        yield _triple(f"holiday{number}", "on", day.date().isoformat(), "date")
        yield _triple(f"meeting{number}", "held", day.date().isoformat(), "date")
        yield _triple(f"word{number}", "word", _word(source, 6), "string")
        yield _triple(f"part{number}", "part", _word(source, 3), "string")


def _word(source: random.Random, syllables: int) -> str:
    return "".join(source.choices(_SYLLABLES, k=syllables))


def _triple(subject: str, predicate: str, lexical: str, name: str) -> str:
    datatype = "" if name == "string" else f"^^<{XSD}{name}>"
    return f'<{NAMESPACE}{subject}> <{NAMESPACE}{predicate}> "{lexical}"{datatype} .\n'


def _of_begin(name: str, call: str) -> OneShotQuery:
    return OneShotQuery(name, f"{call} of date-times", f"SELECT ?item ({call} AS ?part) {{ ?item :begins ?x }}")


def _many(pattern: str, numbers: range) -> str:
    return " ".join(pattern.format(number) for number in numbers)


_NUMBERS = ", ".join(str(number) for number in range(0, 1000, 20))
_KINDS = ", ".join(f":kind{number}" for number in range(50))
_DAYS = ", ".join(f"'{1995 + number // 12}-{number % 12 + 1:02}-07'^^xsd:date" for number in range(50))

VALUE_QUERIES = (
    _of_begin("year", "YEAR(?x)"),
    _of_begin("month", "MONTH(?x)"),
    _of_begin("hours", "HOURS(?x)"),
    _of_begin("seconds", "SECONDS(?x)"),
    _of_begin("tz", "TZ(?x)"),
    _of_begin("timezone", "TIMEZONE(?x)"),
    _of_begin("to-date", "xsd:date(?x)"),
    _of_begin("to-time", "xsd:time(?x)"),
    OneShotQuery("to-date-time", "xsd:dateTime of dates", "SELECT ?item (xsd:dateTime(?x) AS ?at) { ?item :day ?x }"),
    OneShotQuery(
        "filter-year",
        "FILTER on YEAR and MONTH",
        "SELECT ?item { ?item :begins ?x FILTER(YEAR(?x) = 2010 && MONTH(?x) > 6) }",
    ),
    OneShotQuery(
        "group-year",
        "GROUP BY YEAR",
        "SELECT ?year (COUNT(*) AS ?n) { ?item :begins ?x } GROUP BY (YEAR(?x) AS ?year)",
    ),
    OneShotQuery(
        "group-year-sum",
        "GROUP BY YEAR and MONTH, SUM",
        "SELECT ?year ?month (SUM(?number) AS ?sum) { ?item :begins ?x ; :number ?number } "
        "GROUP BY (YEAR(?x) AS ?year) (MONTH(?x) AS ?month)",
    ),
    OneShotQuery("filter-day", "FILTER on dates", "SELECT ?item { ?item :day ?x FILTER(?x < '2001-07-01'^^xsd:date) }"),
    OneShotQuery(
        "filter-local",
        "FILTER on date-times with and without zones",
        f"SELECT ?item {{ ?item :begins ?x FILTER(?x < '{_GAP.isoformat()}'^^xsd:dateTime) }}",
    ),
    OneShotQuery("filter-gyear", "FILTER on years", "SELECT ?item { ?item :year ?x FILTER(?x > '2010'^^xsd:gYear) }"),
    OneShotQuery(
        "difference", "the time between two date-times", "SELECT ?item (?y - ?x AS ?d) { ?item :begins ?x ; :ends ?y }"
    ),
    OneShotQuery(
        "filter-difference",
        "FILTER on the time between two date-times",
        "SELECT ?item { ?item :begins ?x ; :ends ?y FILTER(?y - ?x > 'P8D'^^xsd:dayTimeDuration) }",
    ),
    OneShotQuery(
        "join-dates",
        "= of the dates of two lists",
        "SELECT ?holiday ?meeting { ?holiday :on ?x . ?meeting :held ?y FILTER(?x = ?y) }",
    ),
    OneShotQuery(
        "contains-product",
        "CONTAINS of two lists",
        "SELECT ?x ?y { ?word :word ?x . ?part :part ?y FILTER(CONTAINS(?x, ?y)) }",
    ),
    OneShotQuery(
        "less-product",
        "< of two lists, counted",
        "SELECT (COUNT(*) AS ?n) { ?holiday :on ?x . ?meeting :held ?y FILTER(?x < ?y) }",
    ),
    OneShotQuery(
        "not-in-numbers",
        "NOT IN with 50 numbers",
        f"SELECT ?item {{ ?item :number ?x FILTER(?x NOT IN ({_NUMBERS})) }}",
    ),
    OneShotQuery(
        "not-in-iris", "NOT IN with 50 IRIs", f"SELECT ?item {{ ?item :kind ?x FILTER(?x NOT IN ({_KINDS})) }}"
    ),
    OneShotQuery(
        "not-in-dates", "NOT IN with 50 dates", f"SELECT ?item {{ ?item :day ?x FILTER(?x NOT IN ({_DAYS})) }}"
    ),
    OneShotQuery("in-dates", "IN with 50 dates", f"SELECT ?item {{ ?item :day ?x FILTER(?x IN ({_DAYS})) }}"),
    OneShotQuery(
        "values-undef",
        "VALUES with UNDEF",
        "SELECT ?item ?kind ?number { ?item :kind ?kind ; :number ?number "
        "VALUES (?kind ?number) { (:kind3 UNDEF) (UNDEF 77) (:kind5 78) } }",
    ),
    OneShotQuery(
        "values-undef-many",
        "VALUES of 100 rows with UNDEF",
        "SELECT ?item ?kind ?number { ?item :kind ?kind ; :number ?number VALUES (?kind ?number) { "
        f"{_many('(:kind{0} UNDEF) (UNDEF {0})', range(50))} }} }}",
    ),
    OneShotQuery("sum-large", "SUM of integers below 2^63", "SELECT (SUM(?x) AS ?sum) { ?item :large ?x }"),
    OneShotQuery(
        "sum-larger",
        "SUM of integers, beyond 2^63",
        "SELECT (SUM(?x) AS ?sum) (AVG(?x) AS ?avg) { ?item :larger ?x }",
        wrong={"pyoxigraph": "has no integers beyond 2^63"},
    ),
    OneShotQuery(
        "sum-larger-groups",
        "SUM of large integers by kind",
        "SELECT ?kind (SUM(?x) AS ?sum) { ?item :kind ?kind ; :large ?x } GROUP BY ?kind",
    ),
    OneShotQuery(
        "add-larger",
        "arithmetic with integers that ids do not carry",
        "SELECT ?item (?x - ?y AS ?z) { ?item :larger ?x ; :large ?y }",
    ),
    OneShotQuery(
        "filter-larger",
        "FILTER on integers that ids do not carry",
        "SELECT ?item { ?item :larger ?x FILTER(?x > 3000000000000000000) }",
    ),
)
