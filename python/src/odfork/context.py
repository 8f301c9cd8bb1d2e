"""multiprocessing with a zygote: processes, pools and executors whose workers are its children.

    context = odfork.get_context()
    with ProcessPoolExecutor(mp_context=context) as pool: ...

What may be sent to a process is what the start method "forkserver" can send.
"""

import io
import multiprocessing.util
import os
import pickle
import sys
import threading
from multiprocessing import context, popen_fork, process, reduction, resource_tracker, spawn
from typing import Any, Callable, Dict, List, Optional, Sequence

from .zygote import Zygote

_received: List[int] = []


class Inherited:
    """A descriptor on its way into a child: its place among those sent along."""

    def __init__(self, place: int) -> None:
        self.place = place

    def detach(self) -> int:
        return _received[self.place]


class Popen(popen_fork.Popen):
    """What multiprocessing asks of a started process, by the zygote's handle."""

    method = "zygote"
    DupFd = Inherited

    def __init__(self, process_obj: Any) -> None:
        self._fds: List[int] = []
        super().__init__(process_obj)

    def duplicate_for_child(self, fd: int) -> int:
        self._fds.append(fd)
        return len(self._fds) - 1

    def _launch(self, process_obj: Any) -> None:
        data = io.BytesIO()
        context.set_spawning_popen(self)  # type: ignore[arg-type]
        try:
            reduction.dump(spawn.get_preparation_data(process_obj._name), data)
            reduction.dump(process_obj, data)
        finally:
            context.set_spawning_popen(None)
        parent_lives, ours = os.pipe()
        try:
            fds = [*self._fds, resource_tracker.getfd(), parent_lives]
            self._child = process_obj._context.zygote.start_with(_main, data.getvalue(), fds)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(parent_lives)
        self.pid = self._child.pid
        self.sentinel = os.dup(self._child.fileno())
        self.finalizer = multiprocessing.util.Finalize(self, _close, (ours, self.sentinel))

    def poll(self, flag: int = os.WNOHANG) -> Optional[int]:
        if self.returncode is None:
            self.returncode = self._child.poll() if flag == os.WNOHANG else self._child.wait()
        return self.returncode

    def _send_signal(self, number: int) -> None:
        self._child.send_signal(number)


def _close(*fds: int, close: Callable[[int], None] = os.close) -> None:
    """Also at the interpreter's end, when names of modules are gone."""
    for fd in fds:
        close(fd)


def _main(data: bytes, fds: List[int]) -> None:
    """In the child: becomes the process that was sent."""
    *_received[:], tracker, parent_lives = fds
    resource_tracker._resource_tracker._fd = tracker  # type: ignore[attr-defined]
    stream = io.BytesIO(data)
    current = process.current_process()
    current._inheriting = True  # type: ignore[attr-defined]
    try:
        spawn.prepare(pickle.load(stream))
        made = pickle.load(stream)
    finally:
        del current._inheriting  # type: ignore[attr-defined]
    sys.exit(made._bootstrap(parent_lives))


class ZygoteProcess(process.BaseProcess):
    """A process of a zygote's context; each context has a subclass that knows it."""

    _start_method = "zygote"

    @staticmethod
    def _Popen(process_obj: Any) -> Popen:
        return Popen(process_obj)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if "_context" in type(self).__dict__:  # a context's own class has no name to be found by
            return _received_process, (self.__dict__,)
        return super().__reduce_ex__(protocol)


def _received_process(state: Dict[str, Any]) -> ZygoteProcess:
    made = ZygoteProcess.__new__(ZygoteProcess)
    made.__dict__.update(state)
    return made


class ZygoteContext(context.BaseContext):
    """multiprocessing's interface. The zygote starts with the first process.

    imports, setup and other arguments are those of odfork.Zygote; the main module is imported in
    the template. An existing zygote can be given instead.
    """

    _name = "zygote"

    def __init__(self, zygote: Optional[Zygote] = None, **recipe: Any) -> None:
        self._zygote = zygote
        self._recipe = recipe
        self._lock = threading.Lock()
        self.Process = type("ZygoteProcess", (ZygoteProcess,), {"_context": self})

    @property
    def zygote(self) -> Zygote:
        with self._lock:
            if self._zygote is None:
                self._zygote = Zygote(main=True, **self._recipe)
            return self._zygote

    def get_start_method(self, allow_none: bool = False) -> str:
        return self._name

    def set_start_method(self, method: Optional[str] = None, force: bool = False) -> None:
        raise ValueError("the start method of this context is fixed")

    def set_forkserver_preload(self, module_names: Sequence[str]) -> None:
        """Modules that the template imports, before its first process."""
        self._recipe["imports"] = list(module_names)


# By its name in multiprocessing.set_start_method(), and for the children, which look it up.
context._concrete_contexts.setdefault("zygote", ZygoteContext())  # type: ignore[attr-defined]
