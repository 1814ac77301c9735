"""Wrong variants of the log, of what is cut off it, and of how reports travel (wrong_variants.py has the others)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """module: in wukongs/protocol, or cluster.x in wukongs/cluster. old occurs in its text once. first: the seed from
    which to look. simulator: of tests/sim."""

    name: str
    module: str
    old: str
    new: str
    first: int = 0
    simulator: str = "run"


WRONG_LOGS = (
    Mutant(
        "who votes by an entry that is not applied is not told of the log",
        "log",
        "nodes.union(voter.node for voter in log.voters)",
        "nodes",
        simulator="log_stories",
    ),
    Mutant(
        "the log is cut before the host is done with it",
        "compaction",
        "min(node.settled, needless(control, node.progress))",
        "needless(control, node.progress)",
        simulator="compaction_stories",
    ),
    Mutant(
        "the log is cut before all members have it",
        "compaction",
        "min(node.settled, needless(control, node.progress))",
        "node.settled",
        first=1,
        simulator="compaction_stories",
    ),
    Mutant(
        "another disk is believed to have the log",
        "compaction",
        "report is not None and report.incarnation.disk == control.member(node).disk",
        "report is not None",
        first=1,
        simulator="compaction_stories",
    ),
    Mutant(
        "a member skips records",
        "compaction",
        "return role is Role.OUT or (role is Role.JOINING and node.control.index < member.since)",
        "return True",
        first=2,
        simulator="compaction_stories",
    ),
    Mutant(
        "what is read is forgotten",
        "compaction",
        "floor = min(oldest_sn, stable_sn(control, node.vts))",
        "floor = control.last_sn",
        first=6,
        simulator="compaction_stories",
    ),
    Mutant(
        "who votes is forgotten with the entries",
        "log",
        "return next(changes, log.base_voters)",
        "return next(changes, log.first_voters)",
        first=5,
        simulator="log_stories",
    ),
    Mutant(
        "a control state throws away what was counted",
        "log",
        "entries = log.behind(control.index) if is_shared else ()",
        "entries = ()",
        first=7,
        simulator="log_stories",
    ),
    Mutant(
        "a control state keeps entries of another log",
        "log",
        "is_shared = control.index <= log.last and log.term_at(control.index) == control.term",
        "is_shared = control.index <= log.last",
        first=7,
        simulator="log_stories",
    ),
    Mutant(
        "the term of what was cut off is forgotten",
        "log",
        "if index > self.base else self.base_term",
        "if index > self.base else 0",
        first=5,
        simulator="log_stories",
    ),
    Mutant(
        "what others have reported is not passed on",
        "gossip",
        "if progress.arrived[other] > after and other != node]",
        "if progress.arrived[other] > after and other == me]",
        first=7,
        simulator="compaction_stories",
    ),
    Mutant(
        "nobody is told again what may have been lost",
        "gossip",
        "if times % FULL_TIMES else 0",
        "if times else 0",
        first=7,
        simulator="compaction_stories",
    ),
    Mutant(
        "each stream batch is told at once",
        "gossip",
        "if talk.early == EARLY_MAX:",
        "if False:",
        first=10,
        simulator="compaction_stories",
    ),
    Mutant(
        "who has nothing new to say is taken for dead",
        "gossip",
        "quiet >= REPORT_PULSES or",
        "",
        first=9,
        simulator="compaction_stories",
    ),
    Mutant(
        "a vote goes to any log",
        "log",
        "is_as_new = (message.last_term, message.last_index) >= (log.last_term, log.last)",
        "is_as_new = True",
        first=60,
    ),
    Mutant(
        "a minority elects and commits",
        "log",
        "return 2 * len(those & log.voters) > len(log.voters)",
        "return 2 * len(those & log.voters) >= len(log.voters) - 1",
        first=1,
        simulator="log_world",
    ),
    Mutant(
        "old terms are committed by count",
        "log",
        "if log.term_at(index) == log.term and _is_majority(log, holders):",
        "if _is_majority(log, holders):",
        first=2,
        simulator="log_stories",
    ),
    Mutant(
        "a vote is forgotten in a crash",
        "log",
        "return log, [SaveVote(log.term, sender), Send(sender.node, Vote(log.term, True))]",
        "return log, [Send(sender.node, Vote(log.term, True))]",
        simulator="log_stories",
    ),
    Mutant(
        "an entry is acknowledged before it is saved",
        "log",
        "return log, [*actions, Send(sender.node, Appended(log.term, True, shared))]",
        "return log, [Send(sender.node, Appended(log.term, True, shared)), *actions]",
        first=1,
        simulator="log_stories",
    ),
    Mutant(
        "what a log has held is forgotten when it is cut off",
        "log",
        "high = max(log.high, Position(entries[-1].term, after + len(entries)))",
        "high = Position(entries[-1].term, after + len(entries))",
        first=3,
        simulator="log_stories",
    ),
    Mutant(
        "voters change while the last change is not committed",
        "log",
        "return log.may_propose and not any(",
        "return log.may_propose or not any(",
        first=4,
        simulator="log_stories",
    ),
    Mutant(
        "voters change before an entry of the own term is committed",
        "log",
        "return log.may_propose and not any(",
        "return not any(",
        first=4,
        simulator="log_stories",
    ),
)
