"""`wukongs completion`: a script with which a shell completes commands, options and their values.

The script is made of the parsers of all commands and has everything in it: to complete a word, no Python runs.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wukongs import __version__
from wukongs.cli import COMMANDS, DONE, MODULES, say
from wukongs.cli.parsers import CommandParser

_EPILOG = """examples:
  wukongs completion bash > ~/.local/share/bash-completion/completions/wukongs
  wukongs completion zsh > ~/.zfunc/_wukongs          with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
  wukongs completion fish > ~/.config/fish/completions/wukongs.fish

for this shell only:
  source <(wukongs completion bash)

Make it anew after an upgrade: it has the commands and options of this release.
"""
_FOLDERS = ("DIR", "FOLDER")


@dataclass(frozen=True, slots=True)
class Option:
    """An option as a shell needs it. choices: the values that it takes, if they can be listed."""

    names: tuple[str, ...]
    has_value: bool
    choices: tuple[str, ...]
    is_folder: bool
    help: str


@dataclass(frozen=True, slots=True)
class Place:
    """A command, or one of its actions. words: what stands behind `wukongs`; arguments: values of its plain
    arguments, the actions of a command among them."""

    words: tuple[str, ...]
    options: tuple[Option, ...]
    arguments: tuple[str, ...]
    is_folder: bool

    @property
    def name(self) -> str:
        return " ".join(self.words)


def make_parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="wukongs completion",
        description="Print a script with which a shell completes commands, options and their values.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=tuple(_WRITERS), help="the shell that is to read it")
    return parser


def main(argv: Sequence[str]) -> int:
    say(_WRITERS[make_parser().parse_args(list(argv)).shell](list(places())))
    return DONE


def all_parsers() -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield the words behind `wukongs` and the parser of every command and of every action that has one of its own."""
    for command in COMMANDS:
        module = importlib.import_module(f"wukongs.cli.{MODULES.get(command, command)}")
        if not hasattr(module, "make_parsers"):
            yield (command,), module.make_parser()
            continue
        for action, parser in module.make_parsers(command).items():
            yield ((command, action) if action else (command,)), parser


def places() -> Iterator[Place]:
    """Yield all commands and actions, the command before its actions."""
    found = dict(all_parsers())
    for words, parser in found.items():
        plain = [one for one in parser._actions if not one.option_strings]
        yield Place(
            words,
            tuple(_option(one) for one in parser._actions if one.option_strings and one.help != argparse.SUPPRESS),
            (
                *(other[1] for other in found if len(other) == 2 and other[:1] == words),
                *(str(choice) for one in plain for choice in one.choices or ()),
            ),
            bool(plain) and all(one.metavar in _FOLDERS for one in plain),
        )


def _option(action: argparse.Action) -> Option:
    choices = tuple(str(choice) for choice in action.choices or ())
    text = (action.help or "").replace("%%", "%").partition(" (default")[0]
    return Option(
        tuple(action.option_strings), action.nargs != 0, choices, action.metavar in _FOLDERS, text.partition("; ")[0]
    )


# --- the shells -------------------------------------------------------------------------------------------------------


def _bash(found: list[Place]) -> str:
    head = f"# bash completion of wukongs {__version__}, made by `wukongs completion bash`"
    return f"""{head}
_wukongs() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} place=${{COMP_WORDS[1]}}
    local options= arguments= choices= folders= second=${{COMP_WORDS[2]}}
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W '{_top()}' -- "$cur"))
        return
    fi
    if ((COMP_CWORD > 2)); then
        case "$place $second" in
            {_actions_of(found)}) place="$place $second" ;;
        esac
    fi
    case "$place" in
{_bash_places(found)}
    esac
    case "$place $prev" in
{_bash_values(found)}
    esac
    if [[ -n $choices ]]; then
        COMPREPLY=($(compgen -W "$choices" -- "$cur"))
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    elif [[ -n $arguments ]]; then
        COMPREPLY=($(compgen -W "$arguments" -- "$cur"))
    else
        local IFS=$'\\n'
        compopt -o filenames 2>/dev/null
        if [[ -n $folders ]]; then
            COMPREPLY=($(compgen -d -- "$cur"))
        elif [[ $cur == @* ]]; then
            COMPREPLY=($(compgen -P @ -f -- "${{cur#@}}"))
        else
            COMPREPLY=($(compgen -f -- "$cur"))
        fi
    fi
}}
complete -F _wukongs wukongs
"""


def _bash_places(found: list[Place]) -> str:
    lines = []
    for place in found:
        lines.append(f"        '{place.name}')\n            options='{_names(place)}'")
        lines += [f"            arguments='{' '.join(place.arguments)}'"] * bool(place.arguments)
        lines += ["            folders=1"] * place.is_folder
        lines.append("            ;;")
    return "\n".join(lines)


def _bash_values(found: list[Place]) -> str:
    lines = []
    for place, option in _with_value(found):
        where = "|".join(f"'{place.name} {name}'" for name in option.names)
        what = f"choices='{' '.join(option.choices)}' folders={'1' * option.is_folder}"
        lines.append(f"        {where}) {what} ;;")
    return "\n".join(lines)


def _zsh(found: list[Place]) -> str:
    return f"""#compdef wukongs
# zsh completion of wukongs {__version__}, made by `wukongs completion zsh`
_wukongs() {{
    local place=$words[2] second=$words[3] prev=$words[CURRENT-1]
    local -a options arguments choices
    local folders=
    if (( CURRENT == 2 )); then
        options=(
{_zsh_commands()}
        )
        _describe command options
        return
    fi
    if (( CURRENT > 3 )); then
        case "$place $second" in
            {_actions_of(found)}) place="$place $second" ;;
        esac
    fi
    if [[ $PREFIX == --*=* ]]; then
        prev=${{PREFIX%%=*}}
        compset -P '*='
    fi
    case "$place" in
{_zsh_places(found)}
    esac
    case "$place $prev" in
{_zsh_values(found)}
    esac
    if (( $#choices )); then
        compadd -a choices
    elif [[ $PREFIX == -* ]]; then
        _describe option options
    elif (( $#arguments )); then
        compadd -a arguments
    elif [[ -n $folders ]]; then
        _files -/
    else
        compset -P @
        _files
    fi
}}
if [[ $funcstack[1] == _wukongs ]]; then
    _wukongs "$@"
else
    compdef _wukongs wukongs
fi
"""


def _zsh_commands() -> str:
    return "\n".join(f"            {_quoted(f'{name}:{text}')}" for name, text in COMMANDS.items())


def _zsh_places(found: list[Place]) -> str:
    lines = []
    for place in found:
        described = [f"{name}:{one.help}" for one in place.options for name in one.names]
        lines.append(f"        '{place.name}')\n            options=({' '.join(map(_quoted, described))})")
        lines += [f"            arguments=({' '.join(place.arguments)})"] * bool(place.arguments)
        lines += ["            folders=1"] * place.is_folder
        lines.append("            ;;")
    return "\n".join(lines)


def _zsh_values(found: list[Place]) -> str:
    lines = []
    for place, option in _with_value(found):
        where = "|".join(f"'{place.name} {name}'" for name in option.names)
        lines.append(f"        {where}) choices=({' '.join(option.choices)}) folders={'1' * option.is_folder} ;;")
    return "\n".join(lines)


def _fish(found: list[Place]) -> str:
    lines = [
        f"# fish completion of wukongs {__version__}, made by `wukongs completion fish`",
        "function __wukongs_at",
        "    set -l words (commandline -opc)",
        "    set -l place $words[2]",
        f'    contains -- "$words[2] $words[3]" {" ".join(_quoted(name) for name in _named_actions(found))}',
        '    and set place "$words[2] $words[3]"',
        '    test "$place" = "$argv"',
        "end",
        "complete -c wukongs -n 'test (count (commandline -opc)) -eq 1' -f",
    ]
    first = "-n 'test (count (commandline -opc)) -eq 1'"
    lines += [f"complete -c wukongs {first} -a {name} -d {_quoted(text)}" for name, text in COMMANDS.items()]
    lines.append(f"complete -c wukongs {first} -l version -d 'print the version'")
    for place in found:
        at = f"-n '__wukongs_at {place.name}'"
        lines += [f"complete -c wukongs {at} -f -a '{' '.join(place.arguments)}'"] * bool(place.arguments)
        lines += [f"complete -c wukongs {at} -f -a '(__fish_complete_directories)'"] * place.is_folder
        for option in place.options:
            names = " ".join(f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in option.names)
            lines.append(f"complete -c wukongs {at} {names}{_fish_value(option)} -d {_quoted(option.help)}")
    return "\n".join(lines) + "\n"


def _fish_value(option: Option) -> str:
    if option.choices:
        return f" -x -a '{' '.join(option.choices)}'"
    if option.is_folder:
        return " -x -a '(__fish_complete_directories)'"
    return " -r" * option.has_value


def _top() -> str:
    return " ".join([*COMMANDS, "--help", "--version"])


def _names(place: Place) -> str:
    return " ".join(name for one in place.options for name in one.names)


def _named_actions(found: list[Place]) -> list[str]:
    return [place.name for place in found if len(place.words) == 2]


def _actions_of(found: list[Place]) -> str:
    return "|".join(f"'{name}'" for name in _named_actions(found))


def _with_value(found: list[Place]) -> list[tuple[Place, Option]]:
    """Return the options that take a value which is no plain argument of their place."""
    return [(place, option) for place in found for option in place.options if option.has_value]


def _quoted(text: str) -> str:
    """Quote a text for any of the three shells: none of our texts needs a single quote."""
    return "'" + text.replace("'", "").replace("\\", "") + "'"


_WRITERS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
