"""What all tests share: options of the test run, and where the project and the real data are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run; kernels compile and machines are shared, so no example is timed.
settings.register_profile(
    "wukongs", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("wukongs")

PROJECT_ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        default=False,
        help="write what golden tests expect anew, from what they get",
    )


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
