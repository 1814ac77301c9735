"""The packets between a client and a node: their kinds, and the times that both sides know.

| kind | fields | answered by |
|---|---|---|
| connect | version, client, speaks | connected: session, memory, query_timeout_s, speaks; the same session again |
| call | session, number, done, finished, needed, method, args | answer, failed, working (then: wait), busy or lost |
| wait | session, number | as call |
| rows | session, result, start | rows: the next chunk of a result |
| bytes | session, file, start | bytes |
| release | session, result or file | answer |
| window | session, queries (each with its taken), wait_s (null: confirm only), progress | window, failed; none |
| part | session, number, index, is_last, told | more, full, over, or malformed: lines that were set aside |
| cancel | session, number | answer |
| leave | session | answer |

* Every call has a number. The node keeps its outcome until the client says that it needs it no more: `done` is the
  oldest call whose outcome it needs, `finished` are later ones whose outcomes it does not need. So a call that comes
  again gets its first outcome and is not done twice. `needed` are the calls under way. Changes are known by client and
  number beyond the session, too, and by other nodes (wukongs/outcomes.py).
* `lost` says that there is no such session: nothing of the request was done. A session ends when its client leaves or
  is silent for SILENT_S; the client then connects again, and names its streams and queries anew.
* A call that only reads ends with its session, or once nobody has waited for its outcome for UNASKED_S: its client is
  gone. `wait` finds it lost then, and the same `call` begins it anew. Changes go on.
* A live view has reports in the place of windows: `head` has `report` then, and the arrays have `weights`. `progress`
  has the numbers of the views whose reports without rows are sent, too.
* Windows are numbered by session and query; `taken` confirms one, and the next is not told before. One request asks for
  the windows of many queries, so that a client with hundreds of them does not have hundreds of requests waiting.
"""

from __future__ import annotations

VERSION = 1
"""The version of `connect`, which stays; it says which versions of the other packets a client speaks."""
POLL_S = 2.0
"""A node answers every request within about this time, if only by saying that it is still working."""
SILENT_S = 60.0
"""After so long without a word from its client a session ends."""
UNASKED_S = 30.0
"""A call that only reads ends after so long in which nobody waited for its outcome. A client that is there asks again
as soon as it hears that the call is under way."""

CONNECT, CONNECTED = "connect", "connected"
CALL, WAIT, ANSWER, FAILED, WORKING, BUSY, LOST = "call", "wait", "answer", "failed", "working", "busy", "lost"
ROWS, BYTES, RELEASE = "rows", "bytes", "release"
WINDOW, NONE = "window", "none"
PART, MORE, FULL, OVER, MALFORMED = "part", "more", "full", "over", "malformed"
CANCEL, LEAVE = "cancel", "leave"

SESSIONS_MAX = 1024
CALLS_MAX = 64
"""Calls of one session whose outcome the client has not confirmed."""
RESULTS_MAX = 64
"""Results and files of one session that are not released."""
HANDLES_MAX = 4096
"""Streams, and queries, of one session."""
PART_BYTES = 1 << 20
"""The most bytes of a file that one packet carries."""
