"""A Kafka broker of one process (KRaft mode) on the loopback interface, from its artifacts on Maven Central.

    python tools/kafka_broker.py FOLDER [--port 9092]    run one until Ctrl-C; its data stays in the folder

The jars that tools/kafka_jars.txt names are fetched once, checked by their SHA-256, into build/kafka. WUKONGS_MAVEN is
another repository to fetch them from. Needs Java 17.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path

from wukongs.bench.peers.fetching import FetchError, fetch_jars

ROOT = Path(__file__).resolve().parent.parent
JARS = Path(__file__).with_name("kafka_jars.txt")
CLUSTER = "d3Vrb25ncy1rYWZrYS0wMA"
"""A cluster id: 16 bytes in base64."""


def fetch(folder: Path) -> Path:
    """Bring the jars into a folder, those that are not there; return it."""
    try:
        fetch_jars(JARS, folder, lambda text: None)
    except FetchError as error:
        raise SystemExit(str(error)) from None
    return folder


def start(folder: Path, port: int, controller_port: int, **properties: str) -> subprocess.Popen[bytes]:
    """Start a broker that keeps its data in a folder, which it makes at the first time; it takes some seconds until it
    answers. Its output goes to broker.log there. properties: of the broker, with `_` for each `.`."""
    jars = f"{fetch(ROOT / 'build' / 'kafka')}/*"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", "-Xmx512m", "-cp", jars]
    with (folder / "broker.log").open("ab") as log:
        if not (folder / "data" / "meta.properties").exists():
            format = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(file)]
            subprocess.run(format, check=True, stdout=log, stderr=log)
        return subprocess.Popen([*java, "kafka.Kafka", str(file)], stdout=log, stderr=log)


def main() -> int:
    parser = argparse.ArgumentParser(description="a Kafka broker on the loopback interface")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=9092)
    arguments = parser.parse_args()
    broker = start(arguments.folder, arguments.port, arguments.port + 1)
    print(f"127.0.0.1:{arguments.port}, its log is {arguments.folder}/broker.log; Ctrl-C ends it", flush=True)
    try:
        return broker.wait()
    except KeyboardInterrupt:
        broker.send_signal(signal.SIGTERM)
        return broker.wait()


if __name__ == "__main__":
    sys.exit(main())
