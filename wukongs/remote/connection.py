"""Connection: a client's way to a node, or to the next one when that does not answer any more.

* Every request has a deadline. A node that works for long says so about every POLL_S, so silence is told from work.
* A call has a number, under which it comes again when its answer was lost; the node then gives the first outcome.
* A session may be lost with its node, or by time. Calls that only read are then done again in the next session. So are
  changes that the nodes know by client and number (wukongs/outcomes.py): they count once. Another change is not done
  again, since it may have been applied, unless the node says itself that it did not begin.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from wukongs.consistency import told_sn
from wukongs.errors import (
    DataError,
    DataLost,
    NodeUnavailable,
    OutcomeUnknown,
    QueryTimeout,
    SettingsError,
    WukongsError,
)
from wukongs.forks import Lock, fork_error, note_owner
from wukongs.live.header import SPOKEN, version_with
from wukongs.query.limits import Limits, check_seconds, watched
from wukongs.remote.kinds import (
    BUSY,
    CALL,
    CANCEL,
    CONNECT,
    CONNECTED,
    FAILED,
    LEAVE,
    LOST,
    POLL_S,
    VERSION,
    WAIT,
    WORKING,
)
from wukongs.wire.packets import Array, Packet
from wukongs.wire.refusals import named_error, with_outcome

SILENCE_S = 10.0
_JOIN_MIN_S = 1.0
MARGIN_S = 10.0
"""The time that an answer is waited for beyond the call's own time limit, while the node says that it works."""
REPEAT_S = 60.0
"""How long a change is repeated of which nodes say that its outcome is not known, if it has no time limit."""
FINISHED_TOLD_MAX = 1000
_BUSY_S = 0.05
IN_USE = "has made this connection, which reads its answers: make a new one with wukongs.connect() after the fork"
_BETWEEN_S = 0.1
_PLAIN_ERRORS: Mapping[str, type[Exception]] = {"TypeError": TypeError, "ValueError": ValueError}


class Channel(Protocol):
    """Packets to one node and back, from any thread."""

    def ask(self, packet: Packet, timeout_s: float) -> Packet:
        """Raises NodeUnavailable (no answer within timeout_s, or no way to the node)."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """A session that this client has. memory: names where the outcomes of calls are known."""

    token: str
    memory: str
    query_timeout_s: float
    address: str
    channel: Channel


class SessionLost(Exception):
    """The session has ended, or its node does not answer. Only this package sees this error. may_be_done: the call may
    have been done, and its answer was lost."""

    def __init__(self, message: str, joined: Joined, *, may_be_done: bool) -> None:
        super().__init__(message)
        self.joined = joined
        self.may_be_done = may_be_done


class Moved(Exception):
    """The query that a call names is at another node, and by now so is its connection. Only this package
    sees this error."""


Args = Mapping[str, Any]


class Connection:
    """addresses: of the nodes, which are tried in turn; silence_s: how long a node may say nothing, and how long one is
    looked for then. Raises SettingsError (no address)."""

    def __init__(self, addresses: Sequence[str], open_channel: Callable[[str], Channel], silence_s: float) -> None:
        if not addresses:
            raise SettingsError("addresses = '': expected the address of a node, such as tcp://127.0.0.1:7411")
        self.addresses = list(addresses)
        self._open_channel = open_channel
        self.silence_s = silence_s
        self._client = secrets.token_hex(16)
        self._channels: dict[str, Channel] = {}
        self._joining = threading.Lock()
        self._joined: Joined | None = None
        self._last_token = ""
        self._life: str | None = None
        """The life of the node or cluster that this client was with first."""
        self._failure: NodeUnavailable | None = None
        """Why the last search for a node was in vain; None: it was not."""
        self.on_new_session: Callable[[Joined], None] = lambda _: None
        """Called with each new session, by the thread that has asked for it first."""
        self._place = 0
        """The number of the address to try next."""
        self._numbers = threading.Lock()
        self._number = 0
        self._under_way: set[int] = set()
        self._finished: list[int] = []
        """Calls that are over, of which the node has not been told."""
        self._told_sn: int | None = None
        """The newest SN that a node has told this client."""
        self._is_closed = False
        self._beside: dict[str, Connection] = {}
        """Connections that begin with other nodes, by these."""
        self.is_disowned = False
        """Whether this process was forked from the one that made the connection."""
        note_owner(self)

    held_over_forks: tuple[Lock, ...] = ()

    def disown(self) -> None:
        """Refuse all calls, in a forked child."""
        self.is_disowned = True

    def check_is_own(self) -> None:
        """Raise ForkError in a forked child, before any lock is waited for."""
        if self.is_disowned:
            raise fork_error(IN_USE)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def joined(self, within_s: float | None = None) -> Joined:
        """Return the session, a new one if the last was lost. within_s: how long a node is looked for, if that is less
        than silence_s.

        Raises NodeUnavailable (no node answers in time), and what a node refuses a client with."""
        self.check_is_own()
        joined, is_new = self._join_any(self.silence_s if within_s is None else min(within_s, self.silence_s))
        if is_new:
            self.on_new_session(joined)
        return joined

    def _join_any(self, within_s: float) -> tuple[Joined, bool]:
        """Return the session, and whether it is a new one."""
        failure = self._failure
        with self._joining:
            if self._is_closed:
                raise WukongsError("this connection is closed: make a new one with wukongs.connect()")
            if self._failure is not None and self._failure is not failure:
                # Somebody else has looked for a node while this thread waited for its turn: once is enough.
                raise NodeUnavailable(str(self._failure))
            deadline = time.monotonic() + within_s
            failures: dict[str, str] = {}
            while self._joined is None:
                address = self.addresses[self._place % len(self.addresses)]
                try:
                    self._joined = self._join(address, max(deadline - time.monotonic(), _BETWEEN_S))
                except NodeUnavailable as error:
                    failures[address] = str(error)
                    self._place += 1
                    if time.monotonic() >= deadline and len(failures) == len(set(self.addresses)):
                        message = "no node answers: " + "; ".join(failures.values())
                        failed = NodeUnavailable(message)
                        if within_s >= self.silence_s:  # else others look for longer
                            self._failure = failed
                        raise failed from None
                    if len(failures) == len(set(self.addresses)):
                        time.sleep(_BETWEEN_S)
            self._failure = None
            is_new, self._last_token = self._joined.token != self._last_token, self._joined.token
            return self._joined, is_new

    def _join(self, address: str, left_s: float) -> Joined:
        if address not in self._channels:
            self._channels[address] = self._open_channel(address)
        channel = self._channels[address]
        wait_s = left_s if len(set(self.addresses)) == 1 else min(left_s, max(1.0, self.silence_s / 4))
        answer = channel.ask(Packet(CONNECT, {"version": VERSION, "client": self._client, "speaks": SPOKEN}), wait_s)
        raise_failure(answer, address)
        fields = answer.fields
        token, memory, timeout_s = fields.get("session"), fields.get("memory"), fields.get("query_timeout_s")
        is_known = isinstance(token, str) and isinstance(memory, str) and isinstance(timeout_s, int | float)
        if answer.kind != CONNECTED or not is_known:
            raise DataError(f"{address}: expected a session, found an answer '{answer.kind}'")
        if version_with(fields.get("speaks")) is None:
            raise DataError(
                f"{address}: it speaks versions {fields.get('speaks')!r:.99} of the messages of clients, this client "
                f"{list(SPOKEN)}: run a release on both sides that speaks one of the other's"
            )
        life = fields.get("life")
        if self._life is not None and life != self._life:
            raise DataLost(
                f"{address}: it has begun anew, or belongs to another cluster: what this client told the one before is "
                "not there. Make a new connection to go on with what is there"
            )
        self._life = life if isinstance(life, str) else None
        return Joined(token, memory, timeout_s, address, channel)  # type: ignore[arg-type]

    def beside(self, address: str) -> Connection:
        """Return a connection that begins with another node, and is closed with this one."""
        self.check_is_own()
        with self._joining:
            found = self._beside.get(address)
            if found is None:
                others = [one for one in self.addresses if one != address]
                found = self._beside[address] = Connection([address, *others], self._open_channel, self.silence_s)
                found._life, found._is_closed = self._life, self._is_closed
        with found._joining:
            if found._joined is not None and found._joined.address != address:
                found._joined, found._place = None, 0
        return found

    def lose(self, joined: Joined, *, is_silent: bool) -> None:
        """Note that a session is lost; after silence the next node is tried first."""
        with self._joining:
            if self._joined is joined:
                self._joined = None
                self._place += is_silent

    def ask(self, joined: Joined, kind: str, fields: Args, arrays: Mapping[str, Array] | None = None) -> Packet:
        """Ask something of a session that is answered at once, or after POLL_S.

        Raises SessionLost; the error that the node answers."""
        try:
            answer = joined.channel.ask(
                Packet(kind, {**fields, "session": joined.token}, arrays or {}), POLL_S + self.silence_s
            )
        except NodeUnavailable as error:
            self.lose(joined, is_silent=True)
            raise SessionLost(str(error), joined, may_be_done=True) from error
        if answer.kind == LOST:
            self.lose(joined, is_silent=False)
            raise SessionLost(f"{joined.address}: the session has ended", joined, may_be_done=False)
        return answer

    def close(self) -> None:
        """Leave; may be called again. In a forked child it does nothing."""
        if self.is_disowned:
            return
        with self._joining:
            if self._is_closed:
                return
            self._is_closed = True
            joined, self._joined = self._joined, None
        for one in self._beside.values():
            one.close()
        if joined is not None:
            with contextlib.suppress(WukongsError):
                joined.channel.ask(Packet(LEAVE, {"session": joined.token}), 1.0)
        for channel in self._channels.values():
            channel.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def note_sn(self, sn: int) -> None:
        """Note an SN that a node has told: this client reads nothing older, at whatever node."""
        with self._numbers:
            self._told_sn = sn if self._told_sn is None else max(sn, self._told_sn)

    @property
    def told_sn(self) -> dict[str, int]:
        """The field of a call with the newest SN that this client was told. None where a node may have begun anew."""
        given = told_sn()
        known = [sn for sn in (self._told_sn, given) if sn is not None] if self.has_life else []
        return {"told_sn": max(known)} if known else {}

    @property
    def has_life(self) -> bool:
        """Whether nodes with the same data are told from others."""
        return bool(self._life)

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        args: Args | Callable[[Joined], Args],
        arrays: Mapping[str, Array] | None = None,
        *,
        is_write: bool = False,
        is_known: bool = False,
        limit_s: float | None = None,
        during: Callable[[Joined, int], None] | None = None,
    ) -> tuple[Packet, Joined]:
        """Call a method of the engine; return its answer, and the session that it is from.

        args: the arguments, or a function that makes them for a session (if they name things of the session); is_write:
        the call must not be done twice; is_known: nodes see to that themselves, so it may be asked for again; limit_s:
        after so long it has failed; during: is called once the call has begun, to send data meanwhile. Raises
        NodeUnavailable, QueryTimeout (limit_s), OutcomeUnknown (of a call that writes), and what the method raises."""
        self.check_is_own()
        with self._numbers:
            self._number += 1
            number = self._number
            self._under_way.add(number)
        asked = _Asked(self, method, args, arrays, number, is_write, is_known, limit_s, during)
        try:
            return asked.until_answered()
        except BaseException:
            asked.cancel()
            raise
        finally:
            with self._numbers:
                self._under_way.discard(number)
                self._finished.append(number)

    def needed(self) -> tuple[int, list[int], list[int]]:
        """Return the number of the oldest call that still needs an answer, later ones that do not any more, and those
        that do."""
        with self._numbers:
            oldest = min(self._under_way, default=self._number + 1)
            self._finished = [number for number in self._finished if number > oldest]
            return oldest, self._finished[:FINISHED_TOLD_MAX], sorted(self._under_way)

    def were_told(self, finished: Sequence[int]) -> None:
        """Note that the node knows of these calls that they are over."""
        with self._numbers:
            self._finished = [number for number in self._finished if number not in set(finished)]


class _Asked:
    """One call, until it is answered."""

    def __init__(
        self,
        connection: Connection,
        method: str,
        args: Args | Callable[[Joined], Args],
        arrays: Mapping[str, Array] | None,
        number: int,
        is_write: bool,
        is_known: bool,
        limit_s: float | None,
        during: Callable[[Joined, int], None] | None,
    ) -> None:
        self._connection, self._method, self._args, self._arrays = connection, method, args, arrays
        self._number, self._is_write, self._limit_s, self._during = number, is_write, limit_s, during
        self._is_known = is_known
        self._deadline = None if limit_s is None else time.monotonic() + limit_s
        self._unsure_since: float | None = None
        self._begun: Joined | None = None
        """The session in which it is under way."""
        self._unsure: Joined | None = None
        """A session in which it may have been done, unheard."""
        self._busy_since: float | None = None
        self._limits = watched(Limits())

    def until_answered(self) -> tuple[Packet, Joined]:
        while True:
            try:
                joined = self._connection.joined(self._join_s())
                self._check(joined)
                answer = self._ask(joined)
            except SessionLost as lost:
                if lost.may_be_done or self._begun is lost.joined:
                    self._unsure = lost.joined
                continue
            except WukongsError as error:
                self._check_may_be_repeated(error)
                continue
            if answer.kind == WORKING:
                self._begin(joined)
            elif answer.kind == BUSY:
                self._stand_by(joined)
            else:
                self._begun = None
                told = failure_in(answer)
                if told is None:
                    return answer, joined
                if isinstance(told, OutcomeUnknown):
                    self._unsure = joined
                    self._check_may_be_repeated(told)
                elif not isinstance(told, NodeUnavailable) or not self._has_time_for_another:
                    raise told
                time.sleep(_BETWEEN_S)

    def _join_s(self) -> float | None:
        """Return how long a node may be looked for: what is left of the caller's time, a moment at least."""
        if self._deadline is None:
            return None
        return max(_JOIN_MIN_S, self._deadline - MARGIN_S - time.monotonic())

    def cancel(self) -> None:
        """Tell the node that nobody waits any more, if that is quick."""
        joined = self._begun
        if joined is not None:
            with contextlib.suppress(WukongsError):
                joined.channel.ask(Packet(CANCEL, {"session": joined.token, "number": self._number}), 1.0)

    def _ask(self, joined: Joined) -> Packet:
        if self._begun is joined:
            return self._connection.ask(joined, WAIT, {"number": self._number})
        args = self._args(joined) if callable(self._args) else self._args
        done, finished, needed = self._connection.needed()
        told = {"number": self._number, "done": done, "finished": finished, "needed": needed}
        told |= self._connection.told_sn
        try:
            answer = self._connection.ask(joined, CALL, {**told, "method": self._method, "args": args}, self._arrays)
        except (TypeError, ValueError) as error:  # before anything was sent
            raise SettingsError(
                f"{self._method}: an argument is of a type or value that cannot be sent: {error}"
            ) from None
        self._connection.were_told(finished)
        return answer

    def _begin(self, joined: Joined) -> None:
        is_new = self._begun is not joined
        self._begun = joined
        if is_new and self._during is not None:
            try:
                self._during(joined, self._number)
            except SessionLost as lost:
                self._unsure = joined if lost.may_be_done else self._unsure

    def _stand_by(self, joined: Joined) -> None:
        """Wait a moment for a node that has too much to do. Raises NodeUnavailable after silence_s of that."""
        now = time.monotonic()
        self._busy_since = now if self._busy_since is None else self._busy_since
        if now - self._busy_since > self._connection.silence_s:
            raise NodeUnavailable(
                f"{joined.address}: the node has had too much to do for {self._connection.silence_s:g} s: let "
                "fewer calls wait at a time"
            )
        time.sleep(_BUSY_S)

    def _check(self, joined: Joined) -> None:
        self._limits.check()
        unsure = self._unsure
        if self._is_write and not self._may_repeat and unsure is not None and unsure.memory != joined.memory:
            raise self._unknown("the node stopped answering")
        if self._deadline is not None and time.monotonic() > self._deadline:
            if self._is_write and (self._begun is not None or unsure is not None):
                raise self._unknown(f"the node gave no outcome within {self._limit_s:g} s")
            raise QueryTimeout(
                f"{joined.address}: no outcome of {self._method!r} within {self._limit_s:g} s, though the node "
                "answers: give it more time (timeout_s), or ask for less"
            )

    @property
    def _has_time_for_another(self) -> bool:
        """Whether a change was given time, of which some is left: a node that it needs may be taken out, or be back."""
        return self._is_known and self._deadline is not None and time.monotonic() < self._deadline - MARGIN_S

    @property
    def _may_repeat(self) -> bool:
        """Whether a node that is asked again knows what was done: it has the data of the one before."""
        return self._is_known and self._connection.has_life

    def _check_may_be_repeated(self, error: WukongsError) -> None:
        """Raise an error, unless it leaves open whether a change was done, which is then asked for again."""
        if self._unsure is None or not self._is_write or isinstance(error, DataLost):
            raise error
        now = time.monotonic()
        self._unsure_since = now if self._unsure_since is None else self._unsure_since
        until = self._deadline
        if until is None:  # a node was looked for as long as it may take already
            until = self._unsure_since + REPEAT_S if isinstance(error, OutcomeUnknown) else now
        if now >= until or not self._may_repeat or not isinstance(error, NodeUnavailable):
            raise error if isinstance(error, OutcomeUnknown) else self._unknown(f"{error},") from error

    def _unknown(self, reason: str) -> OutcomeUnknown:
        at = self._unsure or self._begun
        assert at is not None, reason
        return OutcomeUnknown(
            f"{at.address}: {reason} while it did {self._method!r}, and whether it was done is not known. Look whether "
            "the data have it before you repeat it"
        )


def answer_limit(timeout_s: float | None) -> float | None:
    """Return how long an answer is waited for; None: as long as the node says that it works."""
    check_seconds(timeout_s)
    return timeout_s + MARGIN_S if timeout_s is not None and timeout_s > 0 else None


def raise_failure(answer: Packet, address: str) -> None:
    """Raise the error that an answer tells, if it does."""
    if (error := failure_in(answer)) is not None:
        raise error


def failure_in(answer: Packet) -> Exception | None:
    """Return the error that an answer tells, if it does."""
    if answer.kind != FAILED:
        return None
    name, message, arguments = (answer.fields.get(key) for key in ("error", "message", "arguments"))
    if isinstance(name, str) and name in _PLAIN_ERRORS:
        return _PLAIN_ERRORS[name](str(message))
    is_plain = isinstance(arguments, list) and all(one is None or isinstance(one, str | int) for one in arguments)
    error = named_error(str(name), str(message), *(arguments if is_plain else [str(message)]))  # type: ignore[misc]
    return with_outcome(error, answer.fields)
