"""The kinds of sources that go on while they are read: one file and one entry each."""

from __future__ import annotations

from wukongs.adapters.feeds import folder, stdin, tcp
from wukongs.adapters.feeds.feed import Kind

KINDS: dict[str, Kind] = {
    "folder": folder.KIND,
    "stdin": stdin.KIND,
    "tcp": tcp.KIND,
}
