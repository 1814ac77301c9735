"""How Spark's processes reach the driver. Light to import: Spark starts several processes that do nothing else."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wukongs.errors import NodeUnavailable, WukongsError
from wukongs.wire.client_channel import ClientChannel
from wukongs.wire.packets import Packet
from wukongs.wire.refusals import refusal
from wukongs.wire.trust import Keys

if TYPE_CHECKING:
    from wukongs.adapters.bad_records import BadRows
    from wukongs.adapters.push import PushStats


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where the driver listens, with the keys that it lets in."""

    address: str
    keys: Keys

    def connect(self, timeout_s: float) -> DriverChannel:
        return DriverChannel(ClientChannel(self.address, keys=self.keys), timeout_s)


class DriverChannel:
    """Asks the driver, from a process of Spark's. Each call raises NodeUnavailable if the driver has gone."""

    def __init__(self, channel: ClientChannel, timeout_s: float) -> None:
        self._channel, self._timeout_s = channel, timeout_s

    def start(self) -> dict[str, Any]:
        """Return the position before the first epoch, as Spark keeps it."""
        return self._position(Packet("pipeline.start"))

    def next(self, position: dict[str, Any]) -> dict[str, Any]:
        """Return where the next epoch ends; the same position when nothing is to be done (yet)."""
        return self._position(Packet("pipeline.next", {"position": position}))

    def tasks(self, first: dict[str, Any], last: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """Return the items of each task of an epoch, as `item_of` reads them."""
        answer = self._ask(Packet("pipeline.tasks", {"first": first, "last": last}))
        tasks: list[list[dict[str, Any]]] = answer.fields["tasks"]
        return tasks

    def reached_ms(self) -> int:
        """Return the event time that the replay's clock has reached."""
        return int(self._ask(Packet("pipeline.clock")).fields["reached_ms"])

    def report(self, stats: PushStats) -> None:
        """Report a pushed item; returns when the driver has it."""
        self._ask(Packet("pipeline.report", _sendable(stats.to_json())))

    def report_bad(self, part: BadRows) -> None:
        """Report rows that were set aside; returns when the driver has them."""
        self._ask(Packet("pipeline.bad", _sendable(part.to_json())))

    def report_error(self, error: WukongsError) -> None:
        """Report why an item was not pushed; a driver that has gone does not need it any more."""
        with suppress(NodeUnavailable):
            self._ask(Packet("pipeline.error", _sendable(refusal(error).fields)))

    def close(self) -> None:
        self._channel.close()

    def _position(self, packet: Packet) -> dict[str, Any]:
        position: dict[str, Any] = self._ask(packet).fields["position"]
        return position

    def _ask(self, packet: Packet) -> Packet:
        return self._channel.ask(packet, self._timeout_s)


def _sendable(value: Any) -> Any:
    """Return JSON values whose texts can be sent: the name of a file may hold bytes that are no UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {name: _sendable(one) for name, one in value.items()}
    return [_sendable(one) for one in value] if isinstance(value, list) else value
