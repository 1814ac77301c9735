"""What messages call the nodes of the algebra."""

from __future__ import annotations

from wukongs.csparql.algebra import (
    Bgp,
    Distinct,
    Extend,
    Filter,
    GraphNames,
    Group,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    PathPattern,
    PerGraph,
    Project,
    Slice,
    Timestamp,
    TripleParts,
    Union,
    Values,
)

OPERATOR_NAMES = {
    Bgp: "a basic graph pattern",
    PathPattern: "a property path",
    TripleParts: "a triple term",
    Values: "VALUES",
    GraphNames: "GRAPH",
    Join: "a join",
    LeftJoin: "OPTIONAL",
    Minus: "MINUS",
    Union: "UNION",
    Filter: "FILTER",
    Extend: "BIND",
    Timestamp: "timestamp()",
    Group: "GROUP BY",
    Project: "SELECT",
    Distinct: "DISTINCT",
    OrderBy: "ORDER BY",
    Slice: "LIMIT",
    PerGraph: "GRAPH",
}
