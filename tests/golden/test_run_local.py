"""`wukongs run --local` gives every window and every answer that Spark gives, on an example of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.run_output import run_wukongs

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tweets.toml"


@pytest.mark.slow
@pytest.mark.spark
def test_an_example_gives_the_same_windows_with_spark_and_without() -> None:
    through_spark = run_wukongs(EXAMPLE, "--rows", "100")
    from_here = run_wukongs(EXAMPLE, "--rows", "100", "--local")
    assert from_here.windows == through_spark.windows
    assert from_here.rows == through_spark.rows
    assert from_here.asked == through_spark.asked
    assert sum(through_spark.windows.values()) == 5
    assert through_spark.asked["QS", "after"] == 2
    assert "Spark" not in from_here.errors
    assert "Spark" in through_spark.errors
