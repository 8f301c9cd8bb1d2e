"""What processes that are forked for somebody ask of the kernel."""

import contextlib
import ctypes
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1
_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def end_with(parent: int) -> None:
    """This process is killed when its parent dies, also if that has happened already."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def flush() -> None:
    """Before forks, else each child would write what is in the buffers; before os._exit()."""
    flush_streams()
    flush_stdio()


def flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


def flush_stdio() -> None:
    """What C code has written by printf() and the like; exit() would do it, _exit() does not."""
    _libc.fflush(None)


def trim(error: BaseException) -> None:
    """Takes this package's own frames from the beginning of the traceback."""
    own, trace = os.path.dirname(__file__) + os.sep, error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(own):
        trace = trace.tb_next
    error.__traceback__ = trace
