"""What a template is made of: imports, a set-up function, and how it is frozen."""

import gc
import importlib
import os
import pickle
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Union

from .. import _library, _process


@dataclass
class Recipe:
    """Pickled into the template."""

    imports: List[str] = field(default_factory=list)
    setup: bytes = b""  # pickle of (function, arguments), made whole when its module can be found
    path: List[str] = field(default_factory=list)
    preparation: Optional[Dict[str, Any]] = None  # what multiprocessing prepares a child with
    freeze: bool = True
    spares: bool = True  # a child is forked before it is asked for
    once: bool = False  # becomes the first child itself, without a fork
    base: Optional["Recipe"] = None  # what comes first, where its template cannot be forked


@dataclass
class State:
    """What became of a recipe."""

    threads: List[str] = field(default_factory=list)  # names, the main thread's first
    spares: bool = True
    frozen: int = 0
    reason: str = ""


def cook(recipe: Recipe) -> State:
    """Imports, sets up, collects and freezes, in the template itself."""
    _set_up(recipe)
    if recipe.once:
        return State(threads=threads())
    settle()
    state = State(threads=threads(), spares=recipe.spares)
    gc.collect()
    gc.freeze()
    if recipe.freeze:
        _library.freeze()
    state.frozen = _library.stats().frozen_bytes
    state.reason = _library.reason()
    return state


def _set_up(recipe: Recipe) -> None:
    if recipe.base is not None:
        _set_up(recipe.base)
    for entry in reversed(recipe.path):
        if entry not in sys.path:
            sys.path.insert(0, entry)
    if recipe.preparation is not None:
        prepare(recipe.preparation)
    for name in recipe.imports:
        importlib.import_module(name)
    if recipe.setup:
        named, arguments = pickle.loads(recipe.setup)
        function(named)(*arguments)


def function(named: Union[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The function, or what "package.module:function" names."""
    if callable(named):
        return named
    module, colon, name = named.partition(":")
    if not colon:
        raise ValueError(f"{named!r} names no function; write module:function")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def prepare(data: Dict[str, Any]) -> None:
    """Makes the client's main module known, as multiprocessing does in a spawned child."""
    from multiprocessing import spawn

    spawn.prepare(data)


def settle() -> None:
    """Forks once: libraries with threads of their own (OpenBLAS) end them before a fork."""
    _process.flush()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def threads() -> List[str]:
    """Names of the tasks of this process, the main thread's first; Python's where it has one."""
    own = {thread.native_id: thread.name for thread in threading.enumerate()}
    try:
        tasks = sorted(map(int, os.listdir("/proc/self/task")))
    except OSError:
        return list(own.values())
    return [own.get(task) or _kernel_name(task) for task in tasks]


def _kernel_name(task: int) -> str:
    try:
        with open(f"/proc/self/task/{task}/comm", encoding="utf-8", errors="replace") as comm:
            return comm.read().strip()
    except OSError:  # it has just ended
        return "?"
