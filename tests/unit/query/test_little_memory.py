"""A process that gets no more memory says so, and goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wukongs import cli

LIMITED = """
import io, resource
import wukongs

def grown_by(mb):
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmSize:"))
    return int(line.split()[1]) * 1024 + mb * 2**20

lines = b"".join(b"<http://e/s%d> <http://e/p> <http://e/o%d> .\\n" % (i // 10, i) for i in range(20_000))
engine = wukongs.Engine(settings=wukongs.Settings(rows_max=1 << 40, query_bytes_max=1 << 40, query_timeout_s=0))
engine.load(io.BytesIO(lines), format="nt")
PAIRS = "SELECT * { ?s ?p ?o . ?t ?q ?r }"
FEW = "SELECT * { ?s ?p ?o . ?s ?q ?r }"
ANY = "SELECT * { ?s ?p ?o } LIMIT 5"
CHANGE = "INSERT { ?o ?p ?r } WHERE { ?s ?p ?o . ?t ?q ?r }"
ADD = "INSERT DATA { <a:b> <a:c> 1 }"
for text in (FEW, ANY, PAIRS.replace("?t ?q", "<http://e/s1> ?q")):
    engine.query(text)
engine.update(ADD)
engine.update(CHANGE.replace("?t ?q", "<http://e/s1> ?q").replace("?o ?p ?r }", "?o ?p ?o }", 1))
resource.setrlimit(resource.RLIMIT_AS, (grown_by(300), resource.RLIM_INFINITY))
for ask in (lambda: engine.query(PAIRS), lambda: engine.update(CHANGE), lambda: engine.query(PAIRS)):
    try:
        ask()
    except wukongs.BudgetExceeded as error:
        assert "found no memory in this process" in str(error), error
    else:
        raise AssertionError("it found the memory")
    assert len(engine.query(ANY)) == 5
    engine.update(ADD)
engine.close()
"""


@pytest.mark.slow
def test_an_engine_goes_on_after_a_query_that_got_no_memory() -> None:
    run = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr


def no_memory(_: object) -> int:
    raise MemoryError("Unable to allocate 4.00 MiB")


def no_memory_for_a_result(_: object) -> int:
    """Raise the error of numba and Python when there is no memory for a kernel's result."""
    try:
        raise MemoryError
    except MemoryError as error:
        raise SystemError("a kernel returned a result with an exception set") from error


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (no_memory, "no memory (Unable to allocate 4.00 MiB): give the process more, or less to do at a time"),
        (no_memory_for_a_result, "no memory: give the process more, or less to do at a time"),
    ],
)
def test_a_command_says_that_there_was_no_memory(
    command: object, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_dispatch", command)
    assert cli.main(["query"]) == 1
    assert capsys.readouterr().err == f"wukongs: {said}\n"


def test_another_system_error_is_none_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> int:
        raise SystemError("a mistake of ours")

    monkeypatch.setattr(cli, "_dispatch", broken)
    with pytest.raises(SystemError, match="a mistake of ours"):
        cli.main(["query"])
