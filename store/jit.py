"""The one `njit` of the project, and where its compiled kernels are kept.

numba's own disk cache looks only at the file of the compiled function: an edit in a callee of another file goes
unseen. So the cache folder is named by a hash of all kernel sources, of numba's version and of the bounds-check flag,
and it is chosen here, before the first kernel is defined. Import `njit` from here, never from numba.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

_PACKAGE = Path(__file__).absolute().parent.parent
"""The folder of the package wukongs. In a checkout, its store, adapters and csparql are links."""
_WITH_KERNELS = (".", "store", "adapters")
_CONSTANTS = ("store/dtypes.py", "store/layout.py", "query/paths/path_layout.py", "query/plans/plan_layout.py")

_NOTHING = contextlib.nullcontext()
F = TypeVar("F", bound=Callable[..., Any])


def _kernel_sources() -> list[Path]:
    found = {path for folder in _WITH_KERNELS for path in (_PACKAGE / folder).rglob("*_kernels.py")}
    constants = {_PACKAGE / name for name in _CONSTANTS}
    return sorted(found | constants | {_PACKAGE / "store" / "addresses.py", _PACKAGE / "store" / "jit.py"})


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
import numpy as np  # noqa: E402

numba.config.CACHE_DIR = str(KERNEL_CACHE)  # numba may be imported already, and has then read the environment

JIT_DISABLED: bool = bool(numba.config.DISABLE_JIT)


def _compiled(function: F, **options: bool) -> F:
    # numba files a kernel under the path of its source. A checkout has several ways to one file, so take the real one.
    real = os.path.realpath(function.__code__.co_filename)
    function.__code__ = function.__code__.replace(co_filename=real)
    jit: Callable[[F], F] = numba.njit(nogil=True, cache=True, error_model="numpy", **options)
    return jit(function)


def njit(function: F) -> F:
    """Compile a kernel: no GIL, cached on disk, numpy's rules for division. `kernel.py_func` is the plain function."""
    return _compiled(function)


def njit_inline(function: F) -> F:
    """Compile as njit does, for a small function of a hot loop: LLVM always puts its body in place of the call.

    A call passes seven words for each array and counts references to it: much for a few bytes of work."""
    return _compiled(function, forceinline=True)


def njit_uncounted(function: F) -> F:
    """Compile as njit does, without reference counting: for hot kernels that allocate nothing and return no array.

    numba counts references to the owner of every view and of every array that is passed on, with atomic operations: two
    thirds of the time of a plan step."""
    return _compiled(function, _nrt=False)


def kernels_are_cached() -> bool:
    """Tell whether an earlier run has left compiled kernels, so that this run need not compile."""
    return JIT_DISABLED or any(KERNEL_CACHE.rglob("*.nbi"))


def wrapping() -> AbstractContextManager[object]:
    """Return a context for calls of kernels whose integers wrap around: un-jitted, numpy would warn of each."""
    return np.errstate(over="ignore") if JIT_DISABLED else _NOTHING
