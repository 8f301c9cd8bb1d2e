"""Functions that templates and children import by name."""

import ctypes
import io
import os
import resource
import sys
import threading
import time

STATE = {"setups": 0}


def set_up(amount=1):
    STATE["setups"] += amount


def set_up_thread():
    threading.Thread(target=time.sleep, args=(600,), name="poller", daemon=True).start()


def set_up_thread_once(flag):
    """A thread in the first template only."""
    if not os.path.exists(flag):
        open(flag, "w", encoding="ascii").close()
        set_up_thread()


def set_up_fails():
    raise RuntimeError("no such model")


def set_up_output(kept):
    """Leaves text in the buffers of Python and of C; then perhaps other streams."""
    print("set up,", end="")
    ctypes.CDLL(None).printf(b"by C,")
    if not kept:
        sys.stdout, sys.stderr = io.StringIO(), io.TextIOWrapper(io.BytesIO())


def write_by_c():
    ctypes.CDLL(None).printf(b"from C")


def exit_when(flag, status):
    while not os.path.exists(flag):
        time.sleep(0.01)
    sys.exit(status)


def copied_early():
    """How many ranges of memory this child has copied before it was asked for."""
    frame = sys._getframe()
    while "early" not in frame.f_locals:
        frame = frame.f_back
    early = frame.f_locals["early"]
    return 0 if early is None else len(early.ranges)


def setups():
    return STATE["setups"]


def add(a, b=0):
    return a + b


def fail(text):
    raise KeyError(text)


def unpicklable():
    raise type("Local", (Exception,), {})("odd")


def write(text):
    print(text)
    print("to stderr", file=sys.stderr)


def echo():
    sys.stdout.write(sys.stdin.read().upper())


def surroundings():
    mask = os.umask(0)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    return os.getcwd(), dict(os.environ), mask, limit, os.getpgid(0), os.getsid(0)


def where():
    return (
        os.getcwd(),
        os.environ.get("WORD"),
        os.umask(0),
        resource.getrlimit(resource.RLIMIT_CORE),
    )


def descriptors():
    return sorted(int(fd) for fd in os.listdir("/proc/self/fd"))


def targets():
    found = []
    for fd in descriptors():
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # the folder that was listed
            pass
    return found


def write_twice(flag):
    print("first", flush=True)
    while not os.path.exists(flag):
        time.sleep(0.01)
    print("second")


def hold(path):
    with open(path, "w", encoding="ascii") as out:
        out.write(str(os.getpid()))
    time.sleep(600)


def send_where(fd):
    os.write(fd, repr(where()).encode())


def exit_with(code):
    sys.exit(code)


def at_exit(path):
    import atexit

    atexit.register(lambda: open(path, "w", encoding="ascii").close())
