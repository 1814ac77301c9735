"""Changes of an engine's rules: logged and derived as one more snapshot, like an update."""

from __future__ import annotations

from collections.abc import Callable

from wukongs.live.core import Core
from wukongs.live.injector import Injector
from wukongs.rules.changing_graph import Read
from wukongs.rules.inference import Ruleset


def change_rules(core: Core, injector: Injector, change: Callable[[Ruleset], Ruleset]) -> int:
    """Have other rules from now on; return the SN at which all that follows by them is there. Raises RuleError; nothing
    has changed then."""
    with core.update_turn, core.lock:
        core.check_is_open()
        injector.catch_up()
        core.finish_tick()
        core.journal.prepare()  # the head of a segment names the rules that are followed, so not these before they are
        inference, before = core.inference, core.inference.ruleset
        after = change(before)
        if after.rules == before.rules:
            return core.sn
        stored = None if after.alters(before) else inference.plans()
        try:
            inference.take(after)
            trace = core.arrangement.trace
            difference = inference.derive(Read(trace.read(trace.upper)), stored)
            sn = core.next_sn
            core.journal.commit(after.as_record(sn))
        except BaseException:
            inference.take(before)
            raise
        with core.storing(sn):
            core.revoke_old_handles()
            core.arrangement.seal_inferred(sn, difference)
        core.pass_to(sn + 1)
        return sn


def replay(core: Core, found: Ruleset, sn: int) -> None:
    """Do what a record of the log says. Called with the lock held.

    If these are the rules already, and not since one was paused just now, all is derived anew: the head of a segment
    that was begun for the record names them, and a checkpoint may end before it. Else the graph has what follows by the
    rules so far. A rule that took less when it was logged, or had other bounds, may take too much now: it is paused, so
    that the data folder opens."""
    inference = core.inference
    is_followed = inference.is_changed or found.rules != inference.ruleset.rules
    stored = inference.plans() if is_followed and not found.alters(inference.ruleset) else None
    inference.take(found)
    trace = core.arrangement.trace
    if sn >= trace.upper:
        core.arrangement.seal_inferred(sn, inference.derive_or_pause(Read(trace.read(trace.upper)), stored=stored))
    core.pass_to(sn + 1)
