"""The process that runs Python's `re` for wukongs/functions/backtracking.py. Run by its path; needs nothing of ours.

Each line of standard input is a request: ["search", pattern, texts] is answered by a list of truths, ["spans", pattern,
text] by the matches, each as the spans of its groups, the whole first. Ends with standard input.
"""

from __future__ import annotations

import json
import re
import sys


def main() -> None:
    for line in sys.stdin:
        kind, pattern, held = json.loads(line)
        compiled = re.compile(pattern)
        if kind == "search":
            answer: object = [compiled.search(text) is not None for text in held]
        else:
            answer = [[match.span(group) for group in range(compiled.groups + 1)] for match in compiled.finditer(held)]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
