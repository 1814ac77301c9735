"""The compiled functions of the codec against the walk along the type hints: the same values, the same lies."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzzed
from tests.unit.wire.test_protocol_codec import Held, bodies, kinds, values_of
from wukongs.errors import DataError
from wukongs.protocol.messages import Message
from wukongs.wire.compiled_codec import decoder, encoder
from wukongs.wire.protocol_codec import checked, decode

EVERY = (*kinds, Message, Held)
JUNK = (None, True, 0, -1, 1.0, 2**63 - 1, 2**63, -(2**63), "", "in", "Nothing", [], [0], [0, 1, 2], {}, {"is": "Vote"})


def damaged(found: Any) -> Iterator[Any]:
    """Yield what JSON values become when one, at any depth, is replaced, taken out, doubled, added or renamed."""
    yield from JUNK
    if isinstance(found, list):
        yield [*found, 0]
        for at, one in enumerate(found):
            before, after = found[:at], found[at + 1 :]
            yield before + after
            yield [*before, one, one, *after]
            yield from ([*before, other, *after] for other in damaged(one))
    elif isinstance(found, dict):
        yield {**found, "strange": 0}
        for name, one in found.items():
            others = {key: value for key, value in found.items() if key != name}
            yield others
            yield {**others, "strange": one}
            yield from ({**others, name: other} for other in damaged(one))


def told(value: Any) -> str:
    """Return a value as a text in which 1, 1.0 and true are different, and sets are in order."""
    if isinstance(value, frozenset):
        return f"set {sorted(map(told, value))}"
    if isinstance(value, dict):
        return f"dict {sorted((told(key), told(one)) for key, one in value.items())}"
    if isinstance(value, tuple):
        return f"{type(value).__name__} {[told(one) for one in value]}"
    if hasattr(value, "__dataclass_fields__"):
        return f"{type(value).__name__} {[told(getattr(value, name)) for name in value.__dataclass_fields__]}"
    return f"{type(value).__name__} {value!r}"


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_both_ways_take_what_is_true(kind: Any) -> None:
    @fuzzed(12)
    @given(values_of(kind))
    def check(value: Any) -> None:
        found = json.loads(json.dumps(encoder(kind)(value)))
        assert told(decoder(kind)(found)) == told(checked(found, kind, "value")) == told(value)

    check()


@fuzzed(30)
@given(st.sampled_from([*bodies, Message, Held]).flatmap(lambda kind: st.tuples(st.just(kind), values_of(kind))))
def test_both_ways_refuse_the_same(one: tuple[Any, Any]) -> None:
    kind, value = one
    places = list(damaged(json.loads(json.dumps(encoder(kind)(value)))))
    for found in random.Random(len(places)).sample(places, min(len(places), 1000)):
        said = refusal_of(lambda: checked(found, kind, "value"))  # noqa: B023
        if said is None:
            assert told(decoder(kind)(found)) == told(checked(found, kind, "value"))
            continue
        with pytest.raises(Exception):  # noqa: B017  (which one is of no importance: the place is not its matter)
            decoder(kind)(found)
        assert refusal_of(lambda: decode(found, kind, "value")) == said  # noqa: B023


def refusal_of(decoding: Callable[[], Any]) -> str | None:
    try:
        decoding()
    except DataError as error:
        return str(error)
    return None
