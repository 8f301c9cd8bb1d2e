"""What processes that are forked for somebody ask of the kernel."""

import ctypes
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1
_prctl: Any = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None


def end_with(parent: int) -> None:
    """This process is killed when its parent dies; it ends if that has happened already."""
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(255)
