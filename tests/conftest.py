"""Fixtures of all tests: options of the test run, and where the project and the real data are."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fuzz import SEED, TIER, fuzzed

settings.register_profile("wukongs", fuzzed(100))
settings.load_profile("wukongs")

PROJECT_ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        default=False,
        help="write what golden tests expect anew, from what they get",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hand the seed of the tier to hypothesis, before its plugin reads the option."""
    if SEED is not None and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_report_header() -> str:
    return f"tier: {TIER}" + (f", seed: {SEED}" if SEED is not None else "")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark the tests whose examples grow with the tier. Their module imports what draws or counts examples."""
    for item in items:
        if any(hasattr(getattr(item, "module", None), name) for name in ("given", "fuzzed", "scaled")):
            item.add_marker("examples")


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of garbage collections: a third of the time of short tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    """Print the failed tests once more, after warnings of the end, so that the last lines of a long output have them.

    Pytest prints its own line of counts after this."""
    yield
    for kind in ("failed", "error"):
        for report in terminalreporter.stats.get(kind, ()):
            terminalreporter.write_line(f"{kind}: {report.nodeid}")
            if SEED is not None:
                repeat = f"WUKONGS_TIER={TIER} WUKONGS_SEED={SEED} python -m pytest {shlex.quote(report.nodeid)}"
                terminalreporter.write_line(f"repeat it: {repeat}")


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The folder that holds pyproject.toml."""
    return PROJECT_ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data, in ../shared/data beside the project; a test that needs it is skipped where it is not there."""
    folder = PROJECT_ROOT.parent / "shared" / "data"
    if not (folder / "lsbench").is_dir() or not (folder / "citybench").is_dir():
        pytest.skip("the real data is not here: expected ../shared/data/lsbench and ../shared/data/citybench")
    return folder
