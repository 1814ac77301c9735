"""`python -m tests.faults.update_client NAME ADDRESS ...`: updates without end, and says which were acknowledged."""

from __future__ import annotations

import itertools
import sys

import wukongs

EX = "http://ex/"


def run(name: str, addresses: list[str]) -> None:
    with wukongs.connect(addresses, silence_s=60) as client:
        for number in itertools.count():
            client.update(f"INSERT DATA {{ <{EX}{name}{number}> <{EX}k> 1 }}", timeout_s=60)
            print(f"{name}{number}", flush=True)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
