"""How a named error crosses from one process to another: the name of its class and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wukongs import errors
from wukongs.errors import (
    NOT_APPLIED,
    NOT_KNOWN,
    PARTLY_APPLIED,
    BudgetExceeded,
    NodeUnavailable,
    WukongsError,
)
from wukongs.wire.descriptors import is_lack
from wukongs.wire.packets import Packet

REFUSED = "refused"


def refusal(error: BaseException) -> Packet:
    """Return the packet that tells an error to the asker. An error that is not named is told as a failure of the
    node."""
    error = exhausted(error) or error
    if not isinstance(error, WukongsError):
        message = f"the node failed: {type(error).__name__}: {error}. See its log"
        return Packet(REFUSED, {"error": "WukongsError", "message": message, "arguments": [message]})
    kind = next(one for one in type(error).__mro__ if getattr(errors, one.__name__, None) is one)
    arguments = error.__reduce__()[1] if kind is type(error) else (str(error),)
    plain = list(arguments) if all(_is_plain(one) for one in arguments) else [str(error)]
    told = {} if error.outcome == kind.outcome else {"outcome": error.outcome}
    return Packet(REFUSED, {"error": kind.__name__, "message": str(error), "arguments": plain, **told})


def exhausted(error: BaseException) -> WukongsError | None:
    """Return the named error for want of memory, descriptors or threads; None: the error is another one."""
    if isinstance(error, MemoryError):
        return BudgetExceeded(
            "the node has too little memory left for this request. Ask for less at a time, ask again when less is "
            "under way, or give the node more memory"
        )
    if is_lack(error):
        return NodeUnavailable(
            f"the node has no file descriptors left ({error}). Ask again when fewer clients and files are open, or "
            "start it with a higher limit (ulimit -n)"
        )
    return None


def error_in(packet: Packet) -> WukongsError | None:
    """Return the error that an answer tells, with the fields that it was raised with; None if the answer is none."""
    return error_told(packet.fields) if packet.kind == REFUSED else None


def error_told(fields: Mapping[str, Any]) -> WukongsError:
    """Return the error that the fields of a refusal tell."""
    name, message = str(fields.get("error")), str(fields.get("message"))
    arguments = fields.get("arguments")
    if not isinstance(arguments, list) or not all(_is_plain(one) for one in arguments):
        arguments = [message]
    return with_outcome(named_error(name, message, *arguments), fields)


def with_outcome(error: WukongsError, fields: Mapping[str, Any]) -> WukongsError:
    """Return an error with the outcome of its change that the fields of a refusal tell, if they do."""
    if fields.get("outcome") in (NOT_APPLIED, PARTLY_APPLIED, NOT_KNOWN):
        error.outcome = fields["outcome"]
    return error


def named_error(name: str, message: str, *arguments: Any) -> WukongsError:
    """Return the error of wukongs/errors.py with this name, made of these arguments; where there is no such one, or
    others belong to it, one that keeps the name in its text."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, WukongsError)):
        return WukongsError(f"{name}: {message}")
    try:
        error = kind(*arguments)
    except TypeError:
        return WukongsError(f"{name}: {message}")
    return error


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int)
