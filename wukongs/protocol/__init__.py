"""The protocol between nodes, as a value: `step(node, event) -> (node, actions)`.

No socket, clock, thread or disk is in here: a host (and in the tests a seeded simulator, tests/sim) tells what happens
and does what is asked. Everything is a frozen value. Where to read what:

* node.py, state.py: the step, and what a node knows; events.py, actions.py, messages.py: what goes in, out and across;
* log.py, leading.py: the majority log (Raft's algorithm), and what its leader sees to; records.py, control.py: what is
  in it, and what that adds up to;
* claims.py, sealing.py: when a node may use new terms, and has a stream batch whole;
* progress.py, snapshots.py: reports, the stable VTS, and what an SN stands for;
* membership.py: how a node leaves and comes back.

Each module says what it keeps true and why; docs/protocol.md puts the argument together.
"""
