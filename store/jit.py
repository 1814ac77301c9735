"""The one `njit` of the project, and where its compiled kernels are kept.

numba's own disk cache looks only at the file of the compiled function: an edit in a callee of another file goes
unseen. So the cache folder is named by a hash of all kernel sources, of numba's version and of the bounds-check flag,
and it is chosen here, before the first kernel is defined. Import `njit` from here, never from numba.

To compile all kernels takes a minute or two, once for each installation. A process that finds none compiled has that
done by another one, and does not wait: it interprets its kernels meanwhile, where their arrays are small. Each is the
same function either way. WUKONGS_KERNELS=compile turns that off; with =interpret nothing is compiled behind.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import importlib.metadata
import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar, cast

_log = logging.getLogger("wukongs")
_PACKAGE = Path(__file__).absolute().parent.parent
"""The folder of the package wukongs. In a checkout, its store, adapters and csparql are links."""
_WITH_KERNELS = (".", "store", "adapters")
_CONSTANTS = (
    *("store/dtypes.py", "store/layout.py", "query/paths/path_layout.py", "query/plans/plan_layout.py"),
    "query/programs/program_layout.py",
)

_SMALL = 1 << 20
"""Bytes of its arrays up to which a kernel may be interpreted. That takes a second, to compile all that is needed a
minute."""
_LOOK_S = 0.2
COMPILER = "wukongs.cli.compiling"
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
        folder = _temporary_folder() / _cache_key()
        folder.mkdir(exist_ok=True)
    return folder


def _temporary_folder() -> Path:
    """Return this user's folder among the temporary ones. If another user has made it, could write to it, or has put a
    link there, return a new one that this process and those that it starts have: what is found there is run."""
    folder = Path(tempfile.gettempdir()) / f"wukongs-kernels-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
        return folder
    own = tempfile.mkdtemp(prefix=f"{folder.name}-")
    _log.warning(
        "%s: this folder for compiled kernels is another user's, or others can write to it, so it is not used. They "
        "are compiled into %s, for this process alone: remove the first one, or name a folder by WUKONGS_KERNEL_CACHE",
        folder,
        own,
    )
    os.environ["WUKONGS_KERNEL_CACHE"] = own
    atexit.register(_remove, own, os.getpid())
    return Path(own)


def _remove(folder: str, maker: int) -> None:
    """Remove a folder when the process ends that has made it, and not with one that was forked."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def _installation() -> str:
    """Name what compiled kernels are filed under: the place of the package, and Python's version."""
    told = f"{_PACKAGE.resolve()} {sys.version_info[:2]}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


KERNEL_CACHE = _cache_folder()
COMPILING = KERNEL_CACHE / "compiling"
"""The file that a process locks while it compiles them."""
COMPILED = KERNEL_CACHE / f"compiled-{_installation()}"
"""The file that is there once all kernels that are commonly used are compiled."""
os.environ["NUMBA_CACHE_DIR"] = str(KERNEL_CACHE)

import numba  # noqa: E402  (the cache folder has to be set before)
import numpy as np  # noqa: E402

numba.config.CACHE_DIR = str(KERNEL_CACHE)  # numba may be imported already, and has then read the environment

JIT_DISABLED: bool = bool(numba.config.DISABLE_JIT)


def are_kernels_compiled() -> bool:
    return JIT_DISABLED or COMPILED.exists()


class _Meanwhile:
    """The state of a process that waits for another one to compile the kernels. is_on: it still does."""

    def __init__(self) -> None:
        wish = os.environ.get("WUKONGS_KERNELS")
        self.is_on = wish != "compile" and not are_kernels_compiled()
        self._compiles = wish != "interpret"
        self.inside = threading.local()
        self._compiler: subprocess.Popen[bytes] | None = None
        self._began_by = 0
        self._look_at = 0.0

    def look(self) -> bool:
        """Tell whether kernels are still being compiled; have that begun."""
        now = time.monotonic()
        if self.is_on and self._compiles and now >= self._look_at:
            self._look_at = now + _LOOK_S
            self.is_on = not are_kernels_compiled() and self._goes_on()
        return self.is_on

    def _goes_on(self) -> bool:
        if _are_being_compiled():
            return True
        # A process that was forked since, such as a worker of Spark, cannot wait for a child of another one.
        if self._compiler is None or self._began_by != os.getpid():
            self._began_by = os.getpid()
            command = [sys.executable, "-P", "-m", COMPILER, "behind"]
            quiet = subprocess.DEVNULL
            with contextlib.suppress(OSError):
                self._compiler = subprocess.Popen(
                    command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, cwd="/"
                )
        # One that has ended leaves it to another process, or has failed: then they are compiled as they are used.
        return self._compiler is not None and self._compiler.poll() in (None, WAITS_FOR_ANOTHER)


def _are_being_compiled() -> bool:
    """Tell whether any process is compiling all kernels."""
    try:
        with COMPILING.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks here
        pass
    return False


WAITS_FOR_ANOTHER = 75
"""The exit status of a compiler that has found another one at work."""
_meanwhile = _Meanwhile()


def are_kernels_interpreted() -> bool:
    """Tell whether this process has found no compiled kernels, and does not wait for them."""
    return _meanwhile.is_on


def is_compiled_behind() -> bool:
    """Tell whether kernels are compiled by another process while this one interprets them."""
    return _meanwhile.is_on and _meanwhile._compiles


class _Kernel:
    """A kernel that may be interpreted until it is compiled."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.py_func = compiled.py_func

    @property
    def _numba_type_(self) -> Any:
        """The type that kernels see which call this one: that of what is compiled."""
        return self._compiled._numba_type_

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __call__(self, *arguments: Any) -> Any:
        if not _meanwhile.is_on:
            return self._compiled(*arguments)
        inside = _meanwhile.inside
        if getattr(inside, "kernel", False):
            return self.py_func(*arguments)
        if _size(arguments) > _SMALL or not _meanwhile.look():
            return self._compiled(*arguments)
        inside.kernel = True
        try:
            with np.errstate(over="ignore"):
                return self.py_func(*arguments)
        finally:
            inside.kernel = False


def _size(arguments: tuple[Any, ...]) -> int:
    """Return how many bytes arrays have, those in tuples as well."""
    return sum(
        one.nbytes if isinstance(one, np.ndarray) else _size(one) if isinstance(one, tuple) else 0 for one in arguments
    )


def _compiled(function: F, **options: bool) -> F:
    # numba files a kernel under the path of its source. A checkout has several ways to one file, so take the real one.
    real = os.path.realpath(function.__code__.co_filename)
    function.__code__ = function.__code__.replace(co_filename=real)
    jit: Callable[[F], F] = numba.njit(nogil=True, cache=True, error_model="numpy", **options)
    compiled: Any = jit(function)
    kernel: Any = _Kernel(compiled) if _meanwhile.is_on else compiled
    return cast(F, kernel)


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


def wrapping() -> AbstractContextManager[object]:
    """Return a context for calls of kernels whose integers wrap around: un-jitted, numpy would warn of each."""
    return np.errstate(over="ignore") if JIT_DISABLED else _NOTHING
