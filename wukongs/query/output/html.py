"""HTML for notebooks: a result, and facts of an engine and its parts, as tables. Every text is escaped here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from wukongs.errors import WukongsError
from wukongs.query.output.row_text import Cell
from wukongs.query.output.table_cells import cell_writer
from wukongs.query.terms.rdf_terms import split_literal, to_ntriples
from wukongs.query.terms.values import value_of

ROWS_MAX = 50
CHARACTERS_MAX = 300
_RIGHT = ' style="text-align:right"'
_LEFT = ' style="text-align:left"'


def rows_table(
    names: Sequence[str],
    columns: Sequence[Sequence[str | None]],
    row_count: int,
    caption: str,
    prefixes: Mapping[str, str],
) -> str:
    """Return a table of canonical texts, None where unbound: numbers bare and to the right, IRIs with a prefix and
    whole in their titles, other terms as N-Triples.

    row_count: how many rows there are, of which the columns hold the first ones; prefixes: name -> IRI."""
    head = "".join(f"<th{_LEFT}>{escape(name)}</th>" for name in names)
    short = cell_writer(prefixes)
    cells = [[_cell(text, short) for text in column] for column in columns]
    shown = len(cells[0]) if cells else 0
    body = "".join(f"<tr>{''.join(column[row] for column in cells)}</tr>" for row in range(shown))
    more = f"<div>... {row_count - shown:,} more</div>" if row_count > shown else ""
    return (
        f'<div><div style="color:gray">{escape(caption)}</div><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>{more}</div>"
    )


def facts_table(title: str, facts: Callable[[], Mapping[str, Any]]) -> str:
    """Return a table of names and values. facts: asked for them; an error (a closed engine, a node that is away)
    stands in their place."""
    try:
        found = facts()
    except WukongsError as error:
        found = {"error": error}
    body = "".join(
        f"<tr><th{_LEFT}>{escape(name)}</th>"
        f'<td style="text-align:left;white-space:pre-wrap">{escape(_cut(_shown(value)))}</td></tr>'
        for name, value in found.items()
    )
    return f"<div><b>{escape(title)}</b><table><tbody>{body}</tbody></table></div>"


def query_html(title: str, name: str, stats: Callable[[], Mapping[str, Any]], text: str | None = None) -> str:
    """Return the facts of a registered query."""

    def facts() -> dict[str, Any]:
        told = {} if text is None else {"text": text}
        known = stats()
        return {**told, **{key.replace("_", " "): known[key] for key in _OF_QUERY if key in known}}

    return facts_table(f"{title} {name}", facts)


def engine_html(title: str, stats: Callable[[], Mapping[str, Any]]) -> str:
    """Return the facts of an engine: its streams and queries with their counts."""

    def facts() -> dict[str, Any]:
        known = stats()
        streams = {
            f"stream {iri}": f"{one['tuples']:,} tuples, closed up to {one['closed_ms']} ms"
            for iri, one in list(known["streams"].items())[:ROWS_MAX]
        }
        queries = {
            f"query {name}": f"{one['windows']:,} windows, {one['last_rows']:,} rows in the last"
            for name, one in list(known["queries"].items())[:ROWS_MAX]
        }
        left = len(known["streams"]) + len(known["queries"]) - len(streams) - len(queries)
        more = {"...": f"{left:,} more"} if left else {}
        return {"stored triples": known["stored_triples"], **streams, **queries, **more}

    return facts_table(title, facts)


_OF_QUERY = ("windows", "rows", "last_rows", "errors", "results_waiting", "results_dropped", "execution_us_p50")


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _cell(text: str | None, short: Cell) -> str:
    if text is None:
        return "<td></td>"
    if text.startswith('"') and value_of(text).is_numeric:
        return f"<td{_RIGHT}>{escape(_cut(split_literal(text)[0]))}</td>"
    whole = to_ntriples(text)
    if text.startswith('"') or (told := short(text)) == whole:
        return f"<td{_LEFT}>{escape(_cut(whole))}</td>"
    return f'<td{_LEFT} title="{escape(_cut(whole))}">{escape(_cut(told))}</td>'


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTERS_MAX else text[:CHARACTERS_MAX] + "…"
