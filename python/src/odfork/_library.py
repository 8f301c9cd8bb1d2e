"""The C interface of the preloaded library, by ctypes.

The library helps only when it was there from the start of the process: it stands before the C
library's memory calls. Loading it later would leave those calls unseen, so this module never
loads it; it looks for its functions in what is loaded already.
"""

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

NAME = "libodfork.so"


@dataclass(frozen=True)
class Stats:
    """What the library did in this process. Times in nanoseconds, sizes in bytes."""

    engine: str = "plain"
    reason: str = ""
    freezes: int = 0
    freeze_bytes: int = 0
    frozen_bytes: int = 0
    forks: int = 0
    fork_p50_ns: int = 0
    fork_p99_ns: int = 0
    dirty_pages: int = 0


class _Record(ctypes.Structure):
    """struct odfork_stats of odfork.h."""

    _fields_ = [("engine", ctypes.c_uint32), ("reason", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64)
        for name in (
            "freezes",
            "freeze_ns",
            "freeze_bytes",
            "folds_in_place",
            "folds_rebuilt",
            "fold_ns",
            "fold_bytes",
            "thaws",
            "thaw_bytes",
            "forks",
            "forks_failed",
            "fork_min_ns",
            "fork_p50_ns",
            "fork_p99_ns",
            "fork_max_ns",
            "dirty_pages",
            "image_bytes",
            "frozen_bytes",
        )
    ]


ENGINES = ("plain", "small", "huge")


def _loaded() -> Optional[ctypes.CDLL]:
    """The library if this process has it, with its functions declared."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        program = ctypes.CDLL(None)
        for name in ("odfork_freeze", "odfork_refreeze", "odfork_thaw"):
            getattr(program, name).restype = ctypes.c_int
        program.odfork_reason.restype = ctypes.c_char_p
        program.odfork_stats.restype = ctypes.c_size_t
        program.odfork_stats.argtypes = (ctypes.POINTER(_Record), ctypes.c_size_t)
    except (OSError, AttributeError):
        return None
    return program


_library = _loaded()


def available() -> bool:
    """Whether the library is loaded in this process."""
    return _library is not None


def reason() -> str:
    """Why forks are not cheap, in one sentence with what to do; empty when nothing is wrong."""
    if _library is None:
        return unsupported() or "libodfork.so is not loaded; start by: python -m odfork script.py"
    return (_library.odfork_reason() or b"").decode()


def fork() -> int:
    """os.fork(), which the loaded library makes cheap."""
    return os.fork()


def freeze() -> bool:
    """Makes the forks that follow cheap: moves the memory in use into an unnamed file, once.

    Takes about as long as copying the memory. Returns whether memory is frozen; if not, forks are
    the kernel's own and reason() says why.
    """
    return _library is not None and _library.odfork_freeze() == 0


def refreeze() -> bool:
    """As freeze(), for what was written or allocated since."""
    return _library is not None and _library.odfork_refreeze() == 0


def thaw() -> bool:
    """Turns frozen memory back into ordinary memory with the same content."""
    return _library is not None and _library.odfork_thaw() == 0


def stats() -> Stats:
    """The library's counts for this process; all zero without the library."""
    if _library is None:
        return Stats(reason=reason())
    record = _Record()
    _library.odfork_stats(ctypes.byref(record), ctypes.sizeof(record))
    counts = {
        name: getattr(record, name)
        for name in Stats.__dataclass_fields__
        if name not in ("engine", "reason")
    }
    return Stats(engine=ENGINES[min(record.engine, 2)], reason=reason(), **counts)


def unsupported() -> str:
    """Why the library cannot be loaded on this system; empty where it can."""
    if not sys.platform.startswith("linux"):
        return f"odfork needs Linux; this is {sys.platform}"
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"odfork needs an x86-64 processor; this is {platform.machine()}"
    if platform.libc_ver()[0] != "glibc":
        return "odfork needs the GNU C library; this Python uses another one (musl?)"
    return ""


def path() -> Optional[Path]:
    """The library to preload: ODFORK_LIB, else the one in this package, else an installed one."""
    named = os.environ.get("ODFORK_LIB")
    if named:
        return Path(named) if Path(named).is_file() else None
    places = [
        Path(__file__).parent / "lib" / NAME,
        Path(sys.prefix) / "lib" / NAME,
        Path("/usr/local/lib") / NAME,
        Path("/usr/lib") / f"{platform.machine()}-linux-gnu" / NAME,
    ]
    return next((place for place in places if place.is_file()), None)
