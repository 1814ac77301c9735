"""The kinds of sources that go on while they are read: one file and one entry each."""

from __future__ import annotations

from wukongs.adapters.feeds import clock, folder, kafka, mqtt, sse, stdin, tcp, websocket
from wukongs.adapters.feeds.feed import FeedKind, Kind

KINDS: dict[str, Kind | FeedKind] = {
    "folder": folder.KIND,
    "kafka": kafka.KIND,
    "mqtt": mqtt.KIND,
    "sse": sse.KIND,
    "stdin": stdin.KIND,
    "tcp": tcp.KIND,
    "websocket": websocket.KIND,
    "clock": clock.KIND,
}
