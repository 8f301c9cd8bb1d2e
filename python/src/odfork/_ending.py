"""What a test leaves to the end of its process, done at the end of its child.

A child leaves by os._exit(): what pytest's own process has registered must not run in it. So the
child remembers where that ends. Threads are not waited for.
"""

import atexit
import itertools
import os
import sys
from typing import Any
from weakref import finalize

SECONDS = 2.0  # for a daemon process to end by SIGTERM


class Ending:
    """Made at the start of a test's child."""

    def __init__(self) -> None:
        atexit._clear()
        self.first = next(getattr(finalize, "_index_iter", itertools.count()))

    def run(self) -> None:
        """Exit functions, finalizers (temporary directories) and daemon processes of the test's."""
        atexit._run_exitfuncs()
        registry = getattr(finalize, "_registry", {})
        own = [(info.index, end) for end, info in registry.items() if info.index >= self.first]
        for _, end in sorted(own, key=lambda one: one[0], reverse=True):
            if end.atexit:
                end()
        _end_processes()


def _end_processes() -> None:
    """As multiprocessing does at the end of a process; its lists hold pytest's children as well."""
    util: Any = sys.modules.get("multiprocessing.util")
    process: Any = sys.modules.get("multiprocessing.process")
    if util is None or process is None:
        return
    util._run_finalizers(0)  # does nothing for those of another process
    own = [p for p in list(process._children) if p._parent_pid == os.getpid() and p.daemon]
    for child in own:
        child.terminate()
    for child in own:
        child.join(SECONDS)
        if child.is_alive():
            child.kill()
