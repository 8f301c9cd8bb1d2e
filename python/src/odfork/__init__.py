"""fork() of a Python process of any size in microseconds, and ready processes from it.

    python -m odfork script.py          the interpreter with the library loaded
    odfork.freeze()                     make forks cheap from here on
    odfork.Zygote(imports=["pandas"])   a warm process; its children start in a millisecond
    odfork.get_context()                multiprocessing whose workers come from a zygote
    pytest --odfork                     every test in a child of its own

Without the library (another system, musl, not started by one of the ways above) everything works
by the kernel's own fork; `available()` and `reason()` tell.
"""

from typing import TYPE_CHECKING, Any, Optional

from ._library import Stats, available, fork, freeze, reason, refreeze, stats, thaw
from .zygote import Child, Zygote, ZygoteError

if TYPE_CHECKING:
    from .context import ZygoteContext

__version__ = "0.1.0"

__all__ = [
    "Child",
    "Stats",
    "Zygote",
    "ZygoteError",
    "available",
    "fork",
    "freeze",
    "get_context",
    "reason",
    "refreeze",
    "stats",
    "thaw",
]


def get_context(zygote: Optional[Zygote] = None, **recipe: Any) -> "ZygoteContext":
    """A multiprocessing context whose processes are children of a zygote.

    The zygote is the given one, or one made with the first process from the given recipe: imports,
    setup and the other arguments of Zygote.
    """
    from .context import ZygoteContext  # multiprocessing takes 10 ms to import

    return ZygoteContext(zygote, **recipe)
