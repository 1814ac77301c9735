"""The options of format("wukongs") in each direction, read and checked before Spark starts a task. Knows nothing of
Spark: all come as texts."""

from __future__ import annotations

from collections.abc import Mapping

from wukongs.adapters.replay import writer_epoch
from wukongs.adapters.sink import Access, StreamWriter
from wukongs.errors import SettingsError

NODE = ("address", "token_file", "key", "node_key", "timeout_s")
WRITE = (*NODE, "stream", "mapping", "writer", "batch", "batch_base", "partitions", "advance", "lag_ms", "graph")
READ = (*NODE, "query", "graph", "at", "hold_s")
WINDOWS = (*NODE, "query", "registered", "on_gap", "windows_per_batch")
FILES = ("runfile", "stream")
OF_SPARK = ("checkpointlocation", "path", "queryname")
"""Options that Spark itself reads, and hands on."""
PARTITIONS, PARTITIONS_MAX = 16, 4096


class Options:
    """The options of one reader or writer. Raises: SettingsError (a name that is unknown in this direction)."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        unknown = sorted(set(self._given) - set(known) - set(OF_SPARK))
        if unknown:
            raise SettingsError(
                f"option {unknown[0]!r}: there is none of this name here. Expected one of {', '.join(known)}"
            )

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def needed(self, name: str, example: str) -> str:
        """Raises: SettingsError (the option is missing)."""
        found = self._given.get(name)
        if not found:
            raise SettingsError(f'option {name!r} is missing: give it, as .option("{name}", "{example}")')
        return found

    def number(self, name: str, default: int, least: int = 0, most: int = (1 << 62)) -> int:
        """Raises: SettingsError (no integer, or out of its range)."""
        text = self._given.get(name)
        if text is None:
            return default
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if not least <= found <= most:
            raise SettingsError(f"option {name!r} = {text!r}: expected an integer from {least} to {most}")
        return found

    def choice(self, name: str, *choices: str) -> str:
        """Return one of the choices, the first by default. Raises: SettingsError (another one)."""
        found = self._given.get(name, choices[0])
        if found not in choices:
            raise SettingsError(f"option {name!r} = {found!r}: expected {' or '.join(map(repr, choices))}")
        return found

    def access(self) -> Access:
        """Return where the nodes are; the files of keys and tokens are read here. Raises: SettingsError."""
        given = self.needed("address", "tcp://127.0.0.1:7411").split(",")
        addresses = [address.strip() for address in given if address.strip()]
        key, node_key = self.text("key"), self.text("node_key")
        if (key is None) != (node_key is None):
            raise SettingsError("options 'key' and 'node_key' go together: your secret key, and the node's public key")
        return Access.read(addresses, self.text("token_file"), key, node_key, float(self.number("timeout_s", 60, 1)))

    def stream_writer(self, stream: str) -> StreamWriter:
        """Return a new run of the writer that the options name. Raises: SettingsError."""
        name = self.text("writer") or "spark"
        if "/" in name:
            raise SettingsError(f"option 'writer' = {name!r}: expected a name without '/'")
        return StreamWriter(
            access=self.access(),
            stream=stream,
            name=name,
            partition_count=self.number("partitions", PARTITIONS, 1, PARTITIONS_MAX),
            epoch=writer_epoch(),
            lag_ms=self.number("lag_ms", 0),
            closes_newest=self.choice("advance", "newest", "all") == "all",
            text_name="column 'value'" if self.text("mapping") is None else "a triple of the mapping",
        )
