"""Starting an interpreter with the library loaded, and finding out beforehand that it will be."""

import os
import subprocess
import sys
from typing import Dict, List, Mapping, NoReturn, Optional, Tuple

from . import _library

TRIAL = "import ctypes; ctypes.CDLL(None).odfork_stats"


def preloaded(environment: Mapping[str, str]) -> Tuple[Dict[str, str], str]:
    """The environment with the library preloaded, and why it is not (empty when it is).

    The dynamic linker only warns of a library that it cannot load, so an interpreter is started
    once to see.
    """
    env = dict(environment)
    why = _library.unsupported()
    if why:
        return env, why
    library = _library.path()
    if library is None:
        named = os.environ.get("ODFORK_LIB")
        return env, f"{named or _library.NAME} was not found; set ODFORK_LIB to its path"
    others = [p for p in env.get("LD_PRELOAD", "").replace(":", " ").split() if p]
    if not any(p.endswith(_library.NAME) for p in others):
        env["LD_PRELOAD"] = ":".join([str(library), *others])
    failed = _failed(env)
    return (dict(environment), failed) if failed else (env, "")


def _failed(env: Dict[str, str]) -> str:
    trial = subprocess.run(
        [sys.executable, "-I", "-S", "-c", TRIAL],
        env={**env, "ODFORK_STATS": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if trial.returncode == 0:
        return ""
    said = trial.stderr.strip().splitlines()
    return f"{env['LD_PRELOAD']} could not be preloaded" + (f": {said[0]}" if said else "")


def interpreter(arguments: List[str], env: Optional[Mapping[str, str]] = None) -> NoReturn:
    """Becomes this interpreter with the library loaded, or without it after one line."""
    environment, why = preloaded(os.environ if env is None else env)
    if why:
        print(f"odfork: {why}; going on without", file=sys.stderr, flush=True)
    os.execve(sys.executable, [sys.executable, *own_flags(), *arguments], environment)


def own_flags() -> List[str]:
    """-X, -W, -O and others that this interpreter was started with."""
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]
