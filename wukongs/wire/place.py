"""Place: what a node of a cluster tells writers about the cluster, so that they send each node its share."""

from __future__ import annotations

from dataclasses import dataclass

from wukongs.errors import DataError


@dataclass(frozen=True, slots=True)
class Place:
    """Which node answers, and how the cluster divides what comes in (sharding.py)."""

    node: int
    node_count: int
    replica_count: int
    split: tuple[str, ...]


def read_place(found: object) -> Place | None:
    """Return the place that a message names. Raises DataError."""
    if found is None:
        return None
    match found:
        case {"node": int(node), "node_count": int(count), "replica_count": int(replicas), "split": list(split)}:
            if 0 <= node < count and replicas >= 1 and all(isinstance(iri, str) for iri in split):
                return Place(node, count, replicas, tuple(split))
    raise DataError(
        "message 'opened': expected place to be null or an object with node < node_count, replica_count and split, "
        f"found {str(found)[:200]}"
    )
