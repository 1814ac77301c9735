"""The files in deploy/: all paths, options and addresses in them are there; their commands do what they say."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.processes import child
from wukongs.cli import node, serve
from wukongs.cli.ports import free_ports
from wukongs.cli.server import parser_of
from wukongs.cluster.node_config import load_node_config
from wukongs.wire.keys import PUBLIC_FILE, SECRET_FILE, make_keys

yaml = pytest.importorskip("yaml")
find_packages = pytest.importorskip("setuptools").find_packages
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NODES = 3
END_S = 120


def compose(name: str = "compose") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / f"{name}.yaml").read_text())
    return found


def kubernetes() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {one["kind"]: one for one in found}


def container() -> dict[str, Any]:
    found: dict[str, Any] = kubernetes()["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    return found


def cluster_files() -> dict[str, str]:
    return {
        "compose": (DEPLOY / "compose" / "cluster.toml").read_text(),
        "kubernetes": kubernetes()["ConfigMap"]["data"]["cluster.toml"],
    }


def checks() -> dict[str, list[str]]:
    return {
        "compose": compose()["services"]["node0"]["healthcheck"]["test"][1:],
        "kubernetes": container()["readinessProbe"]["exec"]["command"],
    }


def keys_in(folder: Path) -> dict[str, Path]:
    """Make the keys that the comments of the files name; return each by its name in the containers."""
    for who in ("node", "cluster", "client"):
        make_keys(folder / who)
    return known(folder)


def known(folder: Path) -> dict[str, Path]:
    return {
        "node.secret": folder / "node" / SECRET_FILE,
        "node.pub": folder / "node" / PUBLIC_FILE,
        "cluster.secret": folder / "cluster" / SECRET_FILE,
        "clients.pub": folder / "client" / PUBLIC_FILE,
        "client.secret": folder / "client" / SECRET_FILE,
    }


def with_keys(text: str, keys: dict[str, Path]) -> str:
    return re.sub(r"/run/secrets/(?:wukongs/)?([a-z.]+)", lambda found: str(keys[found[1]]), text)


def check_command(words: list[str]) -> None:
    """Parse a command as the command line does."""
    parsers = {"node": node.make_parser(), "stats": parser_of("stats", "", "")}
    assert Path(words[0]).name == "wukongs", words
    parsers[words[1]].parse_args(words[2:])


@pytest.mark.parametrize("which", ["compose", "kubernetes"])
def test_the_file_of_a_cluster_is_one_of_each_node(tmp_path: Path, which: str) -> None:
    text = with_keys(cluster_files()[which], keys_in(tmp_path))
    for number in range(NODES):
        (tmp_path / "node.toml").write_text(f"number = {number}\n{text}")
        config = load_node_config(tmp_path / "node.toml")
        assert (config.number, len(config.nodes), config.replicas) == (number, NODES, 2)
        assert config.listen_clients == "tcp://0.0.0.0:7411"
    names = list(compose()["services"]) if which == "compose" else [f"wukongs-{n}.wukongs" for n in range(NODES)]
    assert [member.clients for member in config.nodes] == [f"tcp://{name}:7411" for name in names]


@pytest.mark.parametrize("which", ["compose", "kubernetes"])
def test_what_tells_whether_a_node_is_ready_is_a_command(which: str) -> None:
    check_command(checks()[which])


def test_the_parts_of_the_compose_file_fit_together() -> None:
    found = compose()
    given = found["secrets"].keys()
    for number, service in enumerate(found["services"].values()):
        assert service["environment"] == {"NODE_NUMBER": str(number)}
        assert set(service["secrets"]) == given
        assert {volume.split(":")[0] for volume in service["volumes"]} <= found["volumes"].keys()
        assert (DEPLOY / "compose" / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        assert service["command"] == ["start-node"]
    assert (DEPLOY / "compose" / found["configs"]["cluster"]["file"]).exists()
    used = {*re.findall(r"/run/secrets/([a-z.]+)", cluster_files()["compose"] + " ".join(checks()["compose"]))}
    assert used == given


def test_the_parts_of_the_manifest_fit_together() -> None:
    found, spec = kubernetes(), kubernetes()["StatefulSet"]["spec"]
    assert (spec["replicas"], spec["serviceName"]) == (NODES, found["Service"]["metadata"]["name"])
    assert found["Service"]["spec"]["clusterIP"] == "None"
    labels = spec["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"] == labels == spec["selector"]["matchLabels"]
    mounted = {one["name"] for one in container()["volumeMounts"]}
    given = {one["name"] for one in spec["template"]["spec"]["volumes"]}
    assert mounted == given | {one["metadata"]["name"] for one in spec["volumeClaimTemplates"]}


def test_the_image_has_the_script_that_starts_a_node() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [line.split()[1:] for line in text.splitlines() if line.startswith("COPY")]
    assert ["--chmod=755", "deploy/start-node.sh", "/usr/local/bin/start-node"] in copied
    assert 'CMD ["start-node"]' in text


SECRETS = (
    *("deploy/compose/keys/node/key.secret", "deploy/compose/token", "keys/client/key.secret", "token", "tokens.txt"),
    *("wukongs/cli/key.secret", "bench/tls/key.pem", "db/log/1.log", ".git/config", ".venv/bin/python", ".env"),
    "bench/results/run.json",
)
"""Files that lie about in checkouts."""


def is_sent(path: str) -> bool:
    """Tell whether docker sends a file as part of what an image is built from: the last pattern that fits it, or a
    folder that it is in, decides."""
    sent, parts = True, path.split("/")
    ways = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            name = re.escape(line.removeprefix("!")).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
            if any(re.fullmatch(name, way) for way in ways):
                sent = line.startswith("!")
    return sent


def copied_paths() -> list[str]:
    """The paths that the Dockerfile copies into layers."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    words = [[word for word in line.split()[1:] if word[0] != "-"] for line in lines if line[:5] in ("COPY ", "ADD ")]
    return [path for copied in words for path in copied[:-1]]


def image_files(folder: Path, more: Sequence[str]) -> Path:
    """Make the folder from which pip installs in the image, of a checkout with more files in it."""
    root, checkout = DEPLOY.parent, folder / "checkout"
    shutil.copytree(
        root,
        checkout,
        symlinks=True,
        ignore=lambda at, _: [".git", ".venv", "build", "docs", "tests"] if at == str(root) else [],
    )
    for path in more:
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text("secret")
    image = folder / "image"
    for source in copied_paths():
        for file in [checkout / source, *(checkout / source).rglob("*")]:
            target = image / file.relative_to(checkout)
            if (file.is_symlink() or file.is_file()) and is_sent(str(file.relative_to(checkout))):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target, follow_symlinks=False)
    return image


def test_no_secret_gets_into_a_layer_of_the_image(tmp_path: Path) -> None:
    """Neither by what is sent, nor, where .dockerignore is not read, by what is copied."""
    assert not [path for path in SECRETS if is_sent(path)]
    image = image_files(tmp_path, SECRETS)
    assert not [file for file in image.rglob("*") if file.is_file() and file.read_bytes() == b"secret"]
    assert not {".", "deploy", "deploy/compose"} & {str(Path(path)) for path in copied_paths()}
    kept = [one["file"] for name in ("compose", "serve") for one in compose(name)["secrets"].values()]
    assert all(file.startswith("${KEYS:-${HOME}/.wukongs}/") for file in kept), kept


def test_the_image_has_all_that_is_installed(tmp_path: Path) -> None:
    image, root = image_files(tmp_path, ()), DEPLOY.parent
    found, wanted = (set(find_packages(str(folder / "src"))) for folder in (image, root))
    assert found == wanted >= {"wukongs", "wukongs.store", "wukongs.adapters.spark"}
    for file in ("rules/library/rdfs.rules", "server/console/index.html", "store/jit.py", "py.typed"):
        assert (image / "src" / "wukongs" / file).read_bytes() == (root / "wukongs" / file).read_bytes()
    assert (image / "deploy" / "start-node.sh").exists()


def locked(file: str) -> dict[str, set[str]]:
    """The hashes in a lock file, by the name and version of each package."""
    found: dict[str, set[str]] = {}
    for line in (DEPLOY.parent / file).read_text().replace("\\\n", "").splitlines():
        if line and not line.lstrip().startswith("#"):
            requirement, *hashes = line.split("--hash=")
            name = requirement.partition(";")[0].strip()
            found.setdefault(name, set()).update(one.strip() for one in hashes)
    return found


def test_the_image_installs_locked_packages_by_their_hashes() -> None:
    image, everything = locked("requirements-image.lock"), locked("requirements.lock")
    assert all(hashes and hashes <= everything[name] for name, hashes in image.items())
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    wanted = {
        re.split("[<>=]", one)[0] for one in [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    }
    assert wanted <= {name.partition("==")[0] for name in image}
    installs = re.findall(r"pip install (.*)", (DEPLOY / "Dockerfile").read_text())
    assert [("--no-deps" in one, "--require-hashes -r " in one, "--no-build-isolation" in one) for one in installs] == [
        (True, True, False),
        (True, False, True),
    ]


def test_the_unit_starts_a_node() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "wukongs.service")
    service = unit["Service"]
    check_command(shlex.split(service["ExecStart"]))
    assert (service["Type"], service["Restart"]) == ("notify", "on-failure")
    assert "MemoryDenyWriteExecute" not in service


def started(folder: Path, environment: dict[str, str]) -> str:
    """Run the script with a program in the place of wukongs; return what it is given."""
    program = folder / "wukongs"
    program.write_text('#!/bin/sh\necho "$1 $2"\ncat "$3"\n')
    program.chmod(0o755)
    (folder / "cluster.toml").write_text("replicas = 2\n")
    given = {"PATH": f"{folder}:{os.environ['PATH']}", "CLUSTER_FILE": str(folder / "cluster.toml"), **environment}
    return subprocess.run(
        ["sh", DEPLOY / "start-node.sh"], env=given, capture_output=True, text=True, check=True
    ).stdout


def test_a_node_finds_its_number(tmp_path: Path) -> None:
    assert started(tmp_path, {"NODE_NUMBER": "1"}) == "node --config\nnumber = 1\nreplicas = 2\n"
    assert started(tmp_path, {"HOSTNAME": "wukongs-2"}) == "node --config\nnumber = 2\nreplicas = 2\n"


@pytest.mark.slow
@pytest.mark.parametrize("which", ["compose", "kubernetes"])
def test_the_nodes_start_and_say_that_they_are_ready(tmp_path: Path, which: str) -> None:
    """The script and the check, with addresses and folders of this machine."""
    text = with_keys(cluster_files()[which], keys_in(tmp_path))
    ports = iter(free_ports(2 * NODES))
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("listen_"))
    text = re.sub(r"tcp://[^:]+:\d+", lambda _: f"tcp://127.0.0.1:{next(ports)}", text)
    addresses = re.findall(r'^clients = "(.*)"', text, re.MULTILINE)
    program = tmp_path / "wukongs"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m wukongs "$@"\n')
    program.chmod(0o755)
    with ExitStack() as stack:
        processes = []
        for number in range(NODES):
            file = tmp_path / f"cluster{number}.toml"
            file.write_text(text.replace("/var/lib/wukongs", str(tmp_path / f"data{number}")))
            given = [f"PATH={tmp_path}:{os.environ['PATH']}", f"CLUSTER_FILE={file}", f"NODE_NUMBER={number}"]
            processes.append(stack.enter_context(child(["env", *given, "sh", str(DEPLOY / "start-node.sh")])))
        for process, address in zip(processes, addresses, strict=True):
            assert process.stdout is not None
            assert process.stdout.readline().strip() == address
            words = with_keys(" ".join(checks()[which]), known(tmp_path))
            command = [str(program), *words.replace("tcp://127.0.0.1:7411", address).split()[1:]]
            checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=END_S)
            assert (checked.returncode, checked.stderr) == (0, "")
            assert list(json.loads(checked.stdout)["members"]) == [str(number) for number in range(NODES)]
        for process in processes:
            process.terminate()
        assert [process.wait(END_S) for process in processes] == [0] * NODES
    assert all((tmp_path / f"data{number}" / "db").is_dir() for number in range(NODES))


def served() -> dict[str, Any]:
    """The one service of the compose file of a node with HTTP."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "serve.yaml").read_text())
    assert list(found["services"]) == ["wukongs"]
    return found


def test_the_parts_of_the_file_of_one_node_with_http_fit_together() -> None:
    found = served()
    service = found["services"]["wukongs"]
    assert (DEPLOY / "compose" / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    assert set(service["secrets"]) == found["secrets"].keys()
    assert {volume.split(":")[0] for volume in service["volumes"]} == found["volumes"].keys()
    folders = {volume.split(":")[1] for volume in service["volumes"]}
    assert folders == set(re.findall(r"^VOLUME (\S+) (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[0])
    options = serve.make_parser().parse_args(service["command"][2:])
    assert service["command"][:2] == ["wukongs", "serve"]
    assert str(options.data_dir.parent) in folders
    assert options.tokens == f"/run/secrets/{service['secrets'][0]}"
    assert service["ports"] == [f"127.0.0.1:{options.port}:{options.port}"]
    assert (
        str(options.port) in re.findall(r"^EXPOSE (.*)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[0].split()
    )


@pytest.mark.slow
def test_the_node_with_http_starts_and_says_that_it_is_ready(tmp_path: Path) -> None:
    """Its command and its check, with a free port and folders of this machine."""
    service = served()["services"]["wukongs"]
    [port] = free_ports(1)
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("secret-of-the-test\n")
    here = {"/var/lib/wukongs": str(tmp_path), "/run/secrets": str(tmp_path), "7480": str(port), "0.0.0.0": "127.0.0.1"}
    command, check = service["command"], service["healthcheck"]["test"][1:]
    for old, new in here.items():
        command, check = ([word.replace(old, new) for word in words] for words in (command, check))
    with child([sys.executable, "-m", *command]) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == f"http://127.0.0.1:{port}"
        assert subprocess.run([sys.executable, *check[1:]], check=False, timeout=END_S).returncode == 0
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"http://127.0.0.1:{port}/sparql?query=ASK%20%7B%7D")
        asked = Request(f"http://127.0.0.1:{port}/sparql?query=ASK%20%7B%7D")
        asked.add_header("Authorization", "Bearer secret-of-the-test")
        with urlopen(asked) as answer:
            assert answer.status == 200
        process.terminate()
        assert process.wait(END_S) == 0
    assert (tmp_path / "db").is_dir()


def test_the_page_about_docker_names_files_and_commands_that_are_there() -> None:
    page = (DEPLOY.parent / "docs" / "how-to" / "docker.md").read_text()
    for path in re.findall(r"`(deploy/[^`]*)`", page):
        assert (DEPLOY.parent / path).exists(), path
    assert "-f serve.yaml" in page
    for comment in (compose_comment("serve.yaml"), compose_comment("compose.yaml")):
        for line in re.findall(r"^#   (\(umask|sudo|wukongs stats)(.*)", comment, re.MULTILINE):
            assert "".join(line).split("  ")[0].strip() in page, line


def compose_comment(file: str) -> str:
    return (DEPLOY / "compose" / file).read_text().partition("x-node")[0]
