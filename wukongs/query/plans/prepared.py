"""PreparedQueries: the algebra and the plans of texts that were asked before.

Two things are kept: the rewritten algebra, which the text alone decides, and plans, which are made anew when sizes
change much (plan_memo.py). The data decide the rest, so each execution looks it up: the ids of constants, the graphs,
the snapshot.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from wukongs.csparql.algebra import Query
from wukongs.csparql.parser import parse_query
from wukongs.csparql.rules import rewrite
from wukongs.query.plans.plan_memo import PlanMemo

TEXT_CHARACTERS_MAX = 1 << 14
"""A longer text is parsed each time: it holds data (a long VALUES) and is not likely to come again."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A parsed and rewritten query, and its plans."""

    query: Query
    memo: PlanMemo = field(default_factory=PlanMemo)


class PreparedQueries:
    """The most recently used queries by text and base, at most count_max. May be used from any thread."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.hit_count = 0
        self._known: OrderedDict[tuple[str, str | None], Prepared] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def prepare(self, text: str, base: str | None) -> Prepared:
        """Return the prepared query of a text; parse it if it is new.

        Raises QuerySyntaxError, UnsupportedFeatureError; a text that is refused is not kept."""
        key = text, base
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                self.hit_count += 1
                return found
        made = Prepared(rewrite(parse_query(text, base)))
        if len(text) > TEXT_CHARACTERS_MAX:
            return made
        with self._lock:
            # Another thread may have parsed the same text meanwhile: one of the two is kept, with its plans.
            found = self._known.setdefault(key, made)
            while len(self._known) > self.count_max:
                self._known.popitem(last=False)
        return found
