"""`wukongs completion`: the scripts complete commands, actions, options, their values, files and folders."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from wukongs.cli import COMMANDS, main
from wukongs.cli.completion import all_parsers
from wukongs.csparql.algebra import Output

HERE = ("people.ttl", "friends.rq", "db")
FORMATS = ("arrow", "csv", "json", "nt", "table", "tsv", "ttl", "xml")
CASES = {
    ("que",): {"query", "queries"},
    ("query", "--form"): {"--format"},
    ("query", "--format", ""): set(FORMATS),
    ("query", "--format", "j"): {"json"},
    ("query", "--data", "peo"): {"people.ttl"},
    ("queries", ""): {"list", "close", "pause", "resume", "running", "kill"},
    ("queries", "list", "--wh"): {"--why"},
    ("queries", "kill", "--wh"): set(),
    ("cluster", "drain", "--to"): {"--to", "--token-file"},
    ("stream", "add", "--index", ""): {"all", "matching"},
    ("register", "--output", ""): set(get_args(Output)),
    ("completion", ""): {"bash", "zsh", "fish"},
    ("nonsense", "--form"): set(),
}
"""What is typed behind `wukongs`, the last word unfinished; what it may become."""


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a file of data, a query, a data folder, and the scripts beside it."""
    for name in HERE[:2]:
        (tmp_path / "here" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "here" / name).touch()
    (tmp_path / "here" / HERE[2]).mkdir()
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        (tmp_path / shell).write_text(capsys.readouterr().out)
    return tmp_path


def run(shell: str, program: str, folder: Path) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *options, "-c", program], cwd=folder / "here", capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def in_bash(folder: Path, typed: list[tuple[str, ...]]) -> list[set[str]]:
    """Complete as bash does, with its variables, and without any program; return what each may become."""
    lines = [f"source {folder / 'bash'}", "PATH="]
    for words in typed:
        quoted = " ".join(map(shlex.quote, ("wukongs", *words)))
        lines.append(f'COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _wukongs; echo "${{COMPREPLY[@]}}"')
    return [set(line.split()) for line in run("bash", "\n".join(lines), folder).splitlines()]


def test_bash_completes_each_case(folder: Path) -> None:
    assert dict(zip(CASES, in_bash(folder, list(CASES)), strict=True)) == CASES


def test_bash_knows_to_call_it(folder: Path) -> None:
    assert run("bash", f"source {folder / 'bash'}; complete -p wukongs", folder) == "complete -F _wukongs wukongs\n"


def test_values_behind_an_equals_sign(folder: Path) -> None:
    """Bash takes `--format=js` for three words, and `--format=` for two."""
    found = in_bash(folder, [("query", "--format", "=", "js"), ("query", "--format", "=")])
    assert found == [{"json"}, set(FORMATS)]


def test_files_and_folders(folder: Path) -> None:
    typed: list[tuple[str, ...]] = [
        ("query", "--data", ""),
        ("query", "@f"),
        ("query", "--data-dir", ""),
        ("backup", "--server", "tcp://127.0.0.1:7411", ""),
        ("keys", ""),
    ]
    assert in_bash(folder, typed) == [set(HERE), {"@friends.rq"}, {"db"}, {"db"}, {"db"}]


def test_every_command_and_option_of_the_help_texts_is_completed(folder: Path) -> None:
    parsers = dict(all_parsers())
    assert {words[0] for words in parsers} == COMMANDS.keys()
    found = in_bash(folder, [("",), *((*words, "--") for words in parsers)])
    assert found[0] == {*COMMANDS, "--help", "--version"}
    for parser, options in zip(parsers.values(), found[1:], strict=True):
        assert options == set(re.findall(r"^  (?:-h, )?(--[\w-]+)", parser.format_help(), re.MULTILINE)), parser.prog


def test_zsh_completes(folder: Path) -> None:
    """Run in zsh with stand-ins for what only its line editor has: they print what they are to offer."""
    program = [
        "compdef() { }; compset() { }; _files() { print -r -- files $@ }",
        "compadd() { print -r -- ${(P)2} }; _describe() { print -r -- ${${(P)2}%%:*} }",
        f"source {folder / 'zsh'}",
        "at() { words=(wukongs $@ ''); CURRENT=$#words; PREFIX=; _wukongs }",
        "at; at query --format; at queries; at query --data; at backup --server url",
        "words=(wukongs queries list --w); CURRENT=4; PREFIX=--w; _wukongs",
    ]
    commands, formats, actions, files, folders, options = run("zsh", "\n".join(program), folder).splitlines()
    assert set(commands.split()) == COMMANDS.keys()
    assert set(formats.split()) == set(FORMATS)
    assert set(actions.split()) == CASES["queries", ""]
    assert (files.strip(), folders.strip()) == ("files", "files -/")
    assert "--why" in options.split()


def test_fish_completes_each_case(folder: Path) -> None:
    lines = [f"source {folder / 'fish'}", *(f'complete -C "wukongs {" ".join(words)}"; echo -' for words in CASES)]
    *offered, _ = run("fish", "\n".join(lines), folder).split("-\n")
    found = [{line.split("\t")[0] for line in text.splitlines()} for text in offered]
    assert dict(zip(CASES, found, strict=True)) == CASES


def test_a_shell_that_is_not_known_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "invalid choice: 'tcsh' (choose from" in capsys.readouterr().err


def test_the_help_says_how_it_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wukongs", "completion", "--help"], capture_output=True, text=True, check=True
    )
    assert "source <(wukongs completion bash)" in done.stdout
