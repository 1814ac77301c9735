"""The public face: what `import wukongs` offers, and that it loads nothing heavy."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import wukongs
from wukongs import errors

HEAVY = {"numpy", "numba", "llvmlite", "pyarrow", "pandas", "rdflib", "pyoxigraph", "pyspark", "py4j", "zmq", "rich"}


def loaded_by(program: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after it ran this program."""
    program += (
        "\nimport sys; print('\\n'.join(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "program",
    [
        "import wukongs",
        "import wukongs.cli; assert wukongs.cli.main(['--help']) == 0",
        "import wukongs.cli; assert wukongs.cli.main(['--version']) == 0",
        "import wukongs.cli; assert wukongs.cli.main(['query', '--help']) == 0",
        "import wukongs.cli; assert wukongs.cli.main(['run', '--help']) == 0",
        "import wukongs.cli; assert wukongs.cli.main(['demo', '--help']) == 0",
        "import wukongs.cli; assert wukongs.cli.main(['bench', '--help']) == 0",
        "import wukongs.cli; assert wukongs.cli.main(['completion', 'bash']) == 0",
        "import wukongs; wukongs.parse_query('SELECT * WHERE { ?s ?p ?o }')",
        "import wukongs; wukongs.Settings()",
    ],
)
def test_nothing_heavy_is_loaded(program: str) -> None:
    modules = loaded_by(program)
    assert "wukongs" in modules
    assert not modules & HEAVY


def test_an_engine_loads_no_library_that_a_plain_query_does_not_need() -> None:
    program = "import wukongs; wukongs.Engine().query('SELECT * { ?s ?p ?o }').serialize('json')"
    assert not loaded_by(program) & {"pandas", "pyoxigraph", "pyspark", "py4j", "zmq", "rich"}


@pytest.mark.parametrize("arguments", [["--help"], ["completion", "bash"]])
def test_help_is_there_at_once(arguments: list[str]) -> None:
    """By the processor's time: beside other tests it waits."""

    def used_s() -> float:
        used = os.times()
        return used.children_user + used.children_system

    command = [sys.executable, "-m", "wukongs", *arguments]
    subprocess.run(command, capture_output=True, check=True)
    seconds = []
    for _ in range(5):
        start = used_s()
        subprocess.run(command, capture_output=True, check=True)
        seconds.append(used_s() - start)
    assert min(seconds) <= 0.3


def test_every_public_name_can_be_had() -> None:
    for name in wukongs.__all__:
        assert getattr(wukongs, name) is not None, name
    assert set(wukongs.__all__) <= set(dir(wukongs))


def test_the_version_is_that_of_the_distribution(project_root: Path) -> None:
    project = tomllib.loads((project_root / "pyproject.toml").read_text("utf-8"))["project"]
    assert wukongs.__version__ == project["version"]


def test_parse_query_reports_the_place_of_an_error() -> None:
    query = wukongs.parse_query("SELECT ?s WHERE { ?s <p> ?o }", base="http://ex/")
    assert query.form == "select"
    assert query.variables == ("s",)
    with pytest.raises(wukongs.QuerySyntaxError) as caught:
        wukongs.parse_query("SELECT ?s\nWHERE ?s }")
    assert (caught.value.line, caught.value.column) == (2, 7)


def test_parse_update_reports_the_place_of_an_error() -> None:
    assert len(wukongs.parse_update("CLEAR ALL ; INSERT DATA { <s> <p> <o> }", base="http://ex/").operations) == 2
    with pytest.raises(wukongs.QuerySyntaxError) as caught:
        wukongs.parse_update("CLEAR ALL ;\nINSERT { }")
    assert (caught.value.line, caught.value.column) == (2, 11)


def test_other_names_are_attribute_errors() -> None:
    assert not hasattr(wukongs, "nonsense")
    with pytest.raises(AttributeError, match="module 'wukongs' has no attribute 'nonsense'"):
        _ = wukongs.nonsense


ERRORS = [
    value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_public_and_derives_from_the_root(error: type[Exception]) -> None:
    assert issubclass(error, wukongs.WukongsError)
    assert getattr(wukongs, error.__name__) is error
    assert error.__name__ in wukongs.__all__


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            errors.QuerySyntaxError("a window", "'WHERE'", 3, 27, "traffic.rq"),
            "traffic.rq, line 3, column 27: expected a window, found 'WHERE'",
        ),
        (
            errors.UnsupportedFeatureError("SERVICE", 2, 1, "load the data"),
            "query, line 2, column 1: SERVICE is not supported yet; load the data",
        ),
        (errors.DataError("expected a dot", "a.nt", 7), "a.nt, line 7: expected a dot"),
        (errors.DataError("is empty", "a.nt"), "a.nt: is empty"),
        (errors.DataError("expected a dot", line=7), "line 7: expected a dot"),
        (errors.CorruptionError("page 7 was altered", "d/batch.arrow", 7), "d/batch.arrow: page 7 was altered"),
        (errors.StreamError("unknown stream"), "unknown stream"),
    ],
)
def test_errors_cross_process_borders(error: errors.WukongsError, text: str) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert str(error) == text
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (text, vars(error))
