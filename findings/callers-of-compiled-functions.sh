#!/usr/bin/env bash
# numba 0.68.1: a function of one line that calls a compiled one has a copy of all of its machine code, which is optimized
# once more for it, also if the callee comes from the cache on disk.
#
# A good guess is that the call of a function that was compiled, or loaded with cache=True, costs a call instruction, as
# with an object file: numba keeps what it has compiled, and says so (cache_hits is 1). But it links the callee's
# intermediate code into each caller and optimizes it again, whatever is inlined in the end. So in a chain of n functions
# the innermost is optimized n times, and its code is n times in memory and in the cache folder.
#
# For users: the time to compile kernels that call each other grows with their depth (here a second for each caller, of
# 3.6 for the callee). Have Python call the function with the large body itself, give it the loop of a thin caller, and do
# not wrap kernels in order to give them a shorter list of arguments.
set -euo pipefail
D=$(mktemp -d); trap 'rm -rf "$D"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$D/lib" numba==0.68.1 numpy==2.4.6
cat >"$D/kernels.py" <<'PY'
from numba import njit

BRANCHES = 30
branch = "        {} c == {}:\n            for j in range(a[i]):\n                t += (a[j] * {}) ^ (t >> {})\n"
source = "def large(a):\n    t = 0\n    for i in range(a.shape[0]):\n        c = a[i] % {}\n".format(BRANCHES)
source += "".join(branch.format("elif" if at else "if", at, at + 3, at % 7 + 1) for at in range(BRANCHES))
PY
python3 - "$D" <<'PY'
import sys
from pathlib import Path

folder = Path(sys.argv[1])
sys.path[:0] = [str(folder), str(folder / "lib")]
import kernels

(folder / "large.py").write_text(f"from numba import njit\n\n\n@njit(cache=True)\n{kernels.source}    return t\n")
PY
cat >"$D/run.py" <<'PY'
import sys
import time

import numba
import numpy as np
from large import large
from numba import njit


@njit
def thin(a):
    return large(a)


@njit
def thinner(a):
    return thin(a) + 1


def lines(function):
    """Instructions and labels of a function's machine code."""
    return sum(len(text.splitlines()) for text in function.inspect_asm().values())


a, seconds = np.arange(40), []
for function in (large, thin, thinner):
    began = time.perf_counter()
    function(a)
    seconds.append(round(time.perf_counter() - began, 1))
hits = sum(large.stats.cache_hits.values())
sizes = [lines(function) for function in (large, thin, thinner) if function is not large or not hits]
print("numba", numba.__version__, "large from the cache:", bool(hits), "seconds:", seconds, "lines of assembly:", sizes)
assert hits == int(sys.argv[1])
if not hits:
    assert sizes[1] > 0.8 * sizes[0], "another behaviour than in 0.68.1"
    assert sizes[2] > 0.8 * sizes[0], "another behaviour than in 0.68.1"
assert min(sizes) > 1000, sizes
PY
cd "$D"
for hits in 0 1; do NUMBA_CACHE_DIR="$D/cache" PYTHONPATH="$D/lib:$D" python3 run.py "$hits"; done
