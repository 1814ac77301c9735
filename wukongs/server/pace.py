"""Pace: how many bytes all subscribers together are sent between two turns of other work in the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

TURN_BYTES, TURN_S = 1 << 20, 0.001
"""At most TURN_BYTES, and one part more, are sent every TURN_S seconds."""
PART_BYTES = 1 << 16


class Pace:
    """Subscribers `take` what they are about to send, and wait while others are sent theirs, in order. So a window for
    many subscribers does not hold up requests: the loop turns to them every TURN_S. Used in one event loop."""

    def __init__(self) -> None:
        self._sent = 0
        """Bytes of this turn."""
        self._has_timer = False
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    async def take(self, size: int) -> None:
        """Return when so many bytes may be sent."""
        loop = asyncio.get_running_loop()
        if not self._has_timer:
            self._has_timer = True
            loop.call_later(TURN_S, self._begin_turn)
        if not self._waiting and self._sent < TURN_BYTES:
            self._sent += size
            return
        turn = loop.create_future()
        self._waiting.append((turn, size))
        await turn

    async def parts(self, whole: bytes) -> AsyncGenerator[memoryview, None]:
        """Iterate over the parts of what is to be sent, each when it may be sent. Nothing is copied."""
        view = memoryview(whole)
        for start in range(0, len(view), PART_BYTES):
            part = view[start : start + PART_BYTES]
            await self.take(len(part))
            yield part

    def _begin_turn(self) -> None:
        self._sent, self._has_timer = 0, False
        while self._waiting and self._sent < TURN_BYTES:
            turn, size = self._waiting.popleft()
            if not turn.done():  # else its subscriber has left
                self._sent += size
                turn.set_result(None)
        if self._sent:
            self._has_timer = True
            asyncio.get_running_loop().call_later(TURN_S, self._begin_turn)
