"""The one `njit` of the project, and where its compiled kernels are kept.

numba's own disk cache looks only at the file of the compiled function: an edit in a callee of another file goes
unseen. So the cache folder is named by a hash of all kernel sources, of numba's version and of the bounds-check flag,
and it is chosen here, before the first kernel is defined. Import `njit` from here, never from numba.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("store", "wukongs", "adapters")
_CONSTANTS = ("store/dtypes.py", "store/layout.py", "wukongs/paths/path_layout.py", "wukongs/plans/plan_layout.py")

F = TypeVar("F", bound=Callable[..., Any])


def _kernel_sources() -> list[Path]:
    found = [path for package in _PACKAGES for path in (_ROOT / package).rglob("*_kernels.py")]
    constants = [_ROOT / name for name in _CONSTANTS]
    return sorted([*found, *constants, _ROOT / "store" / "addresses.py", Path(__file__)])


def _cache_key() -> str:
    digest = hashlib.sha256(importlib.metadata.version("numba").encode())
    digest.update(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())
    for path in _kernel_sources():
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()[:16]


def _cache_folder() -> Path:
    base = os.environ.get("WUKONGS_KERNEL_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "wukongs", "kernels"
    )
    folder = Path(base) / _cache_key()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"wukongs-kernels-{os.getuid()}" / _cache_key()
        folder.mkdir(parents=True, exist_ok=True)
    return folder


KERNEL_CACHE = _cache_folder()
os.environ["NUMBA_CACHE_DIR"] = str(KERNEL_CACHE)

import numba  # noqa: E402  (the cache folder has to be set before)

numba.config.CACHE_DIR = str(KERNEL_CACHE)  # who has imported numba before has read the environment already

JIT_DISABLED: bool = bool(numba.config.DISABLE_JIT)


def njit(function: F) -> F:
    """Compile a kernel: no GIL, cached on disk, numpy's rules for division. `kernel.py_func` is the plain function."""
    return numba.njit(nogil=True, cache=True, error_model="numpy")(function)  # type: ignore[no-any-return]


def njit_inline(function: F) -> F:
    """As njit, for a small function of a hot loop: LLVM always puts its body in place of the call.

    A call passes seven words for each array and counts references to it, which is dear for a few bytes of work."""
    return numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)(function)  # type: ignore[no-any-return]


def njit_uncounted(function: F) -> F:
    """As njit, for the kernels of a hot loop that allocate nothing and return no array: without reference counting.

    numba counts references to the owner of every view and of every array that is passed on, with atomic operations: two
    thirds of the time of a plan step."""
    return numba.njit(nogil=True, cache=True, error_model="numpy", _nrt=False)(function)  # type: ignore[no-any-return]


def kernels_are_cached() -> bool:
    """Tell whether an earlier run has left compiled kernels, so that this run need not compile."""
    return JIT_DISABLED or any(KERNEL_CACHE.rglob("*.nbi"))
