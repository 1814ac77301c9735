"""Writes the trips of trips.csv into a topic of Kafka, each a JSON object whose key is its zone.

    python examples/taxi/to_kafka.py 127.0.0.1:9092 trips [PER_SECOND]

Trips of one zone go to one partition, so each partition has them in the order of their times. With PER_SECOND they come
one by one, so that a run that follows the topic has something to follow. Needs `pip install "wukongs[kafka]"`.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from pathlib import Path

from confluent_kafka import Producer


def main(bootstrap: str, topic: str, per_second: float = 0.0) -> int:
    producer = Producer({"bootstrap.servers": bootstrap})
    with Path(__file__).with_name("trips.csv").open(newline="") as file:
        for trip in csv.DictReader(file):
            producer.produce(topic, json.dumps(trip), key=trip["Zone"])
            producer.poll(0)
            if per_second:
                time.sleep(1 / per_second)
    left: int = producer.flush(30)
    if left:
        print(f"{left} trips were not taken by {bootstrap}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 0.0))
