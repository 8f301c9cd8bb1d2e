"""What a child of a template does between fork and the end of its process."""

import atexit
import builtins
import fcntl
import gc
import io
import os
import pickle
import pkgutil
import resource
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any, List, NoReturn, Optional, Tuple, Union

from .. import _copies, _process
from . import protocol, recipe
from .protocol import Frame, Tag

LIMIT = ((0, 4), (4, 12), (12, 20))  # resource, soft, hard


class Original:
    """What a template changes of itself and gives back to its children."""

    def __init__(self) -> None:
        self.descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft, hard = self.descriptors
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.interrupt = signal.getsignal(signal.SIGINT)
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def hold_interrupts(self) -> None:
        """The terminal's are not for a template. One sent to a new child waits until restore()."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])

    def restore(self) -> None:
        if self.descriptors[0] != self.descriptors[1]:
            resource.setrlimit(resource.RLIMIT_NOFILE, self.descriptors)
        signal.signal(signal.SIGINT, self.interrupt or signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


def run(
    asked: Union[Frame, socket.socket],
    parent: int,
    original: Original,
    own: List[int],
    early: Optional[_copies.Early] = None,
) -> NoReturn:
    """Becomes the process that is asked for, by a frame that is here or comes by a socket.

    `own`: the template's descriptors, to be closed.
    """
    status = 255
    try:
        signal.set_wakeup_fd(-1)
        for fd in own:
            os.close(fd)
        if parent and not (isinstance(asked, Frame) and asked.get(Tag.DETACHED) is not None):
            _process.end_with(parent)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        atexit._clear()
        gc.enable()
        if early is not None and not isinstance(asked, Frame):
            early.copy()
        frame = asked if isinstance(asked, Frame) else _await(asked)
        original.restore()
        targets = _targets(frame)
        _place(frame, targets)
        _surroundings(frame)
        status = _main(frame)
    except BaseException as error:
        status = _uncaught(error)
    finally:
        _end(status)


def _await(sock: socket.socket) -> Frame:
    """A spare child waits for what it is to become; it ends when its template does.

    An interrupt that arrives before is for the group that the child is in, not for what it becomes.
    """
    own: List[object] = []

    def waits(milliseconds: Optional[int] = None) -> List[Tuple[int, int]]:
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        return poller.poll(milliseconds)

    def interrupted(*_: object) -> None:
        own.extend(waits(0))

    with sock:
        sock.setblocking(True)
        signal.signal(signal.SIGINT, interrupted)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        waits()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        frame = protocol.receive(sock)
    if frame is None:
        os._exit(0)
    if own:
        os.kill(os.getpid(), signal.SIGINT)
    return frame


def rehearsed(descriptors: List[int]) -> None:
    """What the first child of a template is asked to call: notes what it has copied so far."""
    _copies.note(descriptors[0])


def _targets(frame: Frame) -> List[int]:
    packed = frame.get(Tag.TARGETS) or b""
    return [int.from_bytes(packed[i : i + 4], "little") for i in range(0, len(packed), 4)]


def _place(frame: Frame, targets: List[int]) -> None:
    """Gives the frame's descriptors their numbers."""
    if not targets:
        return
    above = max(targets) + 1
    # First out of the way of every target, then into place.
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in frame.descriptors]
    frame.close()
    frame.descriptors = moved[len(targets) :]
    for fd, target in zip(moved, targets):
        os.dup2(fd, target, inheritable=True)
        os.close(fd)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and _number(stream) in targets:
            stream.reconfigure(line_buffering=stream.isatty())


def _number(stream: io.TextIOWrapper) -> int:
    """The descriptor; -1 of what a template has put in the place of a standard stream."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return -1


def _surroundings(frame: Frame) -> None:
    for limit in frame.all(Tag.LIMIT):
        which, soft, hard = (int.from_bytes(limit[a:b], "little") for a, b in LIMIT)
        resource.setrlimit(which, (_signed(soft), _signed(hard)))
    if frame.get(Tag.MASK) is not None:
        os.umask(frame.int(Tag.MASK))
    directory = frame.get(Tag.DIRECTORY)
    if directory is not None:
        os.chdir(directory)
    if frame.get(Tag.SESSION) is not None:
        os.setsid()
    elif frame.get(Tag.GROUP) is not None:
        try:
            os.setpgid(0, frame.int(Tag.GROUP))
        except PermissionError:  # a group of another session: the template's own will do
            pass
    variables = list(frame.all(Tag.ENVIRONMENT))
    if variables:
        os.environ.clear()
        for variable in filter(None, variables):
            name, _, value = os.fsdecode(variable).partition("=")
            os.environ[name] = value


def _signed(number: int) -> int:
    """RLIM_INFINITY is -1 here and all ones in a frame."""
    return number - (1 << 64) if number >> 63 else number


def _main(frame: Frame) -> int:
    """Runs what was asked for; the exit status."""
    arguments = [os.fsdecode(a) for a in frame.all(Tag.ARGUMENT)]
    preparation = frame.get(Tag.PREPARATION)
    if preparation is not None:
        recipe.prepare(pickle.loads(preparation))
    call = frame.get(Tag.CALL)
    if call is not None:
        sys.argv[1:] = arguments
        if frame.get(Tag.RESULT) is not None:
            return _answer(call, frame.descriptors.pop())
        function, args, keywords = pickle.loads(call)
        if frame.get(Tag.EXTRA) is not None:
            args = (*args, list(frame.descriptors))
        function(*args, **keywords)
        return 0
    template = frame.get(Tag.TEMPLATE)
    if template is not None:
        from .template import serve_child

        serve_child(pickle.loads(template), frame.descriptors.pop())
        return 0
    return _program(frame, arguments)


def _answer(call: bytes, fd: int) -> int:
    """Calls, and writes what came of it for the client."""
    try:
        function, args, keywords = pickle.loads(call)
        answer = pickle.dumps((True, function(*args, **keywords)))
    except Exception as error:
        trace = traceback.format_exc()
        try:
            answer = pickle.dumps((False, error, trace))
            pickle.loads(answer)
        except Exception:
            answer = pickle.dumps((False, RuntimeError(repr(error)), trace))
    with open(fd, "wb") as out:
        out.write(answer)
    return 0


def _program(frame: Frame, arguments: List[str]) -> int:
    """As `python SCRIPT`, `python -m MODULE` and `python -c COMMAND`, for the part that shows."""
    script, module, command = (frame.get(t) for t in (Tag.SCRIPT, Tag.MODULE, Tag.COMMAND))
    if script is not None:
        path = os.fsdecode(script)
        sys.argv = [path, *arguments]
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        if pkgutil.get_importer(path) is None:
            with io.open_code(os.path.abspath(path)) as file:
                _become(file.read(), os.path.abspath(path))
        else:  # a folder or an archive
            runpy.run_path(path, run_name="__main__")
    elif module is not None:
        sys.argv = [module.decode(), *arguments]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(module.decode(), run_name="__main__", alter_sys=True)
    elif command is not None:
        sys.argv = ["-c", *arguments]
        _become(command, "<string>")
    else:
        raise ValueError("the request says nothing to run")
    return 0


def _become(source: bytes, name: str) -> None:
    """Runs the source as the main module, in the place of the template's."""
    main: Any = types.ModuleType("__main__")
    main.__builtins__ = builtins
    if name != "<string>":
        main.__file__, main.__cached__ = name, None
    sys.modules["__main__"] = main
    exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)


def _uncaught(error: BaseException) -> int:
    """The exit status an exception asks for; what it says goes where an interpreter says it.

    After an interrupt that is the signal's, negative: it ends the process when all else is done.
    """
    if isinstance(error, SystemExit):
        return _exit_code(error.code)
    try:
        _process.trim(error)
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException:
        traceback.print_exc()
    return -int(signal.SIGINT) if isinstance(error, KeyboardInterrupt) else 1


def _exit_code(code: Optional[object]) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _end(status: int) -> NoReturn:
    """Ends as an interpreter does, without tearing down memory that is shared with others."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
        status = status or 1
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            status = status or 120
    _process.flush_stdio()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
