"""Live views of random queries, at every SN beside pyoxigraph and the definitions (tests/fuzzing/views.py)."""

from __future__ import annotations

import pytest

from tests.faces import FACES
from tests.fuzz import SEED, TIER, scaled
from tests.fuzzing.views import CHANGES, VIEWS, Lives, fuzz_life

LIVES = 2 if TIER == "fast" else scaled(40)


def lived(numbers: range, face: str = "embedded") -> Lives:
    lives = Lives()
    for number in numbers:
        lives.add(fuzz_life(f"{'tests' if SEED is None else SEED}/{number}", face))
    assert not lives.opened, "\n\n".join(lives.opened)
    return lives


def test_views_are_what_their_text_says() -> None:
    lives = lived(range(2))
    assert lives.queries > VIEWS * CHANGES
    assert lives.not_empty > 3
    assert lives.bound > 0, "arguments"


@pytest.mark.slow
def test_views_of_every_operator_are_what_their_text_says() -> None:
    lives = lived(range(2, LIVES))
    assert not lives.faults()


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES[1:])
def test_views_are_what_their_text_says_on_each_face(face: str) -> None:
    lives = lived(range(LIVES, LIVES + scaled(4)), face)
    assert lives.not_empty > VIEWS
