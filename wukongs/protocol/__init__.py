"""The protocol between nodes, as a value: `step(node, event) -> (node, actions)`.

No socket, clock, thread or disk is in here: a host (and in the tests a seeded simulator, tests/sim) tells the events
and does the actions. Everything is a frozen value. The files:

* node.py, state.py: the step and a node's state; events.py, actions.py, messages.py: its input, its output, its
  messages;
* log.py, leading.py: the majority log (Raft's algorithm), and the other work of its leader; records.py, control.py: its
  records, and their sum;
* claims.py, sealing.py: when a node may use new terms, and has a stream batch whole;
* progress.py, snapshots.py: reports, the stable VTS, and the meaning of an SN;
* membership.py: how a node leaves and comes back.

Each module says what it keeps true and why; docs/protocol.md puts the argument together.
"""
