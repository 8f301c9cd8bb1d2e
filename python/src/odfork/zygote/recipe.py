"""What a template is made of: imports, a set-up function, and how it is frozen."""

import gc
import importlib
import os
import pickle
import sys
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Union

from .. import _library


@dataclass
class Recipe:
    """Pickled into the template."""

    imports: List[str] = field(default_factory=list)
    setup: bytes = b""  # pickle of (function, arguments), made whole when its module can be found
    path: List[str] = field(default_factory=list)
    preparation: Optional[Dict[str, Any]] = None  # what multiprocessing prepares a child with
    freeze: bool = True
    once: bool = False  # becomes the first child itself, without a fork


@dataclass
class State:
    """What became of a recipe."""

    threads: int = 1
    frozen: int = 0
    reason: str = ""


def cook(recipe: Recipe) -> State:
    """Imports, sets up, collects and freezes, in the template itself."""
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
    if recipe.once:
        return State(threads=threads())
    settle()
    state = State(threads=threads())
    gc.collect()
    gc.freeze()
    if recipe.freeze:
        _library.freeze()
    state.frozen = _library.stats().frozen_bytes
    state.reason = _library.reason()
    return state


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
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def threads() -> int:
    """The tasks of this process, as the kernel counts them."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1
