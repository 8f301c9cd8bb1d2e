"""The zygote as a client sees it: making templates, asking them for children."""

import functools
import os
import pickle
import socket
import subprocess
import sys
import threading
import weakref
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from .. import _library, _start
from . import protocol
from .connection import Connection, Lost, pair
from .handle import Child, Executed, ZygoteError, readable
from .protocol import Frame, Kind, Tag
from .recipe import Recipe
from .request import Options, Request, call, default_path, preparation

PROGRAM = "import sys; from odfork.zygote.template import main; sys.exit(main(int(sys.argv[1])))"


class Zygote:
    """A template and the children it hands out.

    imports   modules the template imports
    setup     a function, or "module:function", called in the template with `setup_args`
    path      directories for sys.path of the template; default: this process's
    freeze    whether the template's memory is frozen
    env       environment of the template; default: this process's
    threads   what to do when the template has threads after its imports, which a fork would lose:
              "fallback" executes a new interpreter for each child, "allow" forks all the same
    spare     whether a child waits ready for the next request, a process more
    main      whether the template imports this process's main module, as multiprocessing does
    timeout   seconds the template may take to get ready

    `fallback` tells why children are not forked, `reason` why forks are not cheap; both empty when
    all is well. A template that has died is made again at the next request.
    """

    def __init__(
        self,
        imports: Iterable[str] = (),
        setup: Union[None, str, Callable[..., Any]] = None,
        setup_args: Sequence[Any] = (),
        *,
        path: Optional[Sequence[str]] = None,
        freeze: bool = True,
        env: Optional[Mapping[str, str]] = None,
        threads: str = "fallback",
        spare: bool = True,
        main: bool = False,
        timeout: Optional[float] = None,
        _parent: Optional["Zygote"] = None,
    ) -> None:
        if threads not in ("fallback", "allow"):
            raise ValueError(f'threads is "fallback" or "allow", not {threads!r}')
        self._recipe = Recipe(
            list(imports),
            b"" if setup is None else pickle.dumps((setup, tuple(setup_args))),
            list(default_path() if path is None else path),
            preparation(setup, always=main),
            freeze,
            spare,
        )
        self._env = dict(os.environ if env is None else env)
        self._threads, self._timeout, self._parent = threads, timeout, _parent
        self._end: Any = None
        self._lock = threading.Lock()
        self.pid = 0
        self.fallback = self.reason = ""
        self.frozen_bytes = 0
        self._connection: Optional[Connection] = None
        self._start_template()

    # The template

    def _start_template(self) -> None:
        ours, theirs = pair()
        connection = Connection(ours)
        try:
            if self._parent is None or self._parent.fallback:
                process: Any = self._execute(self._whole(), ours, theirs)
            else:
                process = self._parent._start_nested(self._recipe, theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        state = _ready(connection, process, self._timeout)
        self.pid = state.int(Tag.PROCESS)
        self.frozen_bytes = state.int(Tag.FROZEN)
        self.reason = (state.get(Tag.REASON) or b"").decode()
        self.fallback = _fallback(state) if self._threads == "fallback" else ""
        # The template lives as long as the zygote or a handle of one of its children.
        self._end = weakref.finalize(connection, _close, connection.sock, process)
        self._end.atexit = False  # then the kernel closes, after multiprocessing's own ending
        self._connection = connection

    def _whole(self) -> Recipe:
        """The recipe of a process that has nothing of the parent's template."""
        if self._parent is None:
            return self._recipe
        return replace(self._recipe, base=self._parent._whole())

    @functools.cached_property
    def _surroundings(self) -> Dict[str, str]:
        """What a template is executed with: found out once, by a trial."""
        env = _start.preloaded(self._env)[0] if self._recipe.freeze else self._env
        return {"ODFORK_QUIET": "1", **env}

    def _execute(
        self, recipe: Recipe, ours: socket.socket, theirs: socket.socket
    ) -> "subprocess.Popen[bytes]":
        source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        program = f"import sys; sys.path.append({source!r}); {PROGRAM}"
        number = str(theirs.fileno())
        arguments = [sys.executable, *_start.own_flags(), "-c", program, number]
        process = subprocess.Popen(arguments, env=self._surroundings, pass_fds=[theirs.fileno()])
        theirs.close()
        protocol.send(ours, Frame(0).add(Tag.TEMPLATE, pickle.dumps(recipe)))
        return process

    def _start_nested(self, recipe: Recipe, theirs: socket.socket) -> Child:
        for last in (False, True):  # nothing is lost by asking a new template again
            request = Request(Options())
            request.extra(os.dup(theirs.fileno()))
            request.frame.add(Tag.TEMPLATE, pickle.dumps(recipe))
            try:
                return self._send(request, "template")
            except ZygoteError:
                if last or not self.lost:
                    raise
        raise AssertionError

    def nested(self, imports: Iterable[str] = (), setup: Any = None, **options: Any) -> "Zygote":
        """A zygote whose template is a child of this one's: it has what this one has, and more."""
        return Zygote(imports, setup, path=(), env=self._env, _parent=self, **options)

    def reload(self) -> None:
        """Makes a new template from the same recipe. Children of the old one live on."""
        with self._lock:
            self._start_template()

    def close(self) -> None:
        """Ends the template and the children that are not detached."""
        if self._connection is not None:
            self._connection.lost = True
            self._connection = None
            self._end()

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # Children

    def start(
        self,
        function: Optional[Callable[..., Any]] = None,
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        *,
        script: Optional[str] = None,
        module: Optional[str] = None,
        command: Optional[str] = None,
        **options: Any,
    ) -> Child:
        """Starts a child that calls `function`, or runs a script, a module or source text.

        Options: argv, stdin, stdout, stderr (as subprocess.Popen, PIPE included), text, pass_fds,
        cwd, env, limits {RLIMIT: (soft, hard)}, umask, deadline (seconds until it is killed),
        detached, start_new_session, process_group. What is not given is the template's.
        """
        request = Request(Options(**options))
        given = [x for x in (function, script, module, command) if x is not None]
        try:
            if len(given) != 1:
                raise TypeError("start() takes one of: a function, script, module, command")
            if function is not None:
                request.frame.add(Tag.CALL, call(function, args, kwargs or {}))
                self._prepare(request, function)
            for tag, text in ((Tag.SCRIPT, script), (Tag.MODULE, module), (Tag.COMMAND, command)):
                if text is not None:
                    request.frame.add(tag, os.fsencode(text))
        except BaseException:
            request.abandon()
            raise
        return self._send(request, str(given[0]))

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function in a child; its result, or its exception raised here."""
        child, answer = self._start_call(function, args, kwargs)
        with open(answer, "rb") as stream:
            data = stream.read()
        child.wait()
        return _result(child, data)

    async def call_async(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """As call(), for asyncio. A cancelled call kills its child."""
        child, answer = self._start_call(function, args, kwargs)
        data = b""
        try:
            os.set_blocking(answer, False)
            while True:
                await readable(answer)
                part = os.read(answer, 1 << 20)
                if not part:
                    break
                data += part
            await child.wait_async()
        finally:
            os.close(answer)
            child.kill()
        return _result(child, data)

    def _start_call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Tuple[Child, int]:
        request = Request(Options())
        ours, theirs = os.pipe()
        try:
            request.extra(theirs)
            request.frame.add(Tag.RESULT).add(Tag.CALL, call(function, args, kwargs))
            self._prepare(request, function)
            return self._send(request, str(function)), ours
        except BaseException:
            request.abandon()
            os.close(ours)
            raise

    def start_with(self, function: Callable[..., Any], data: bytes, fds: Sequence[int]) -> Child:
        """Starts a child that calls function(data, numbers of the descriptors in the child)."""
        request = Request(Options())
        try:
            for fd in fds:
                request.extra(os.dup(fd))
            request.frame.add(Tag.EXTRA).add(Tag.CALL, call(function, (data,), {}))
        except BaseException:
            request.abandon()
            raise
        return self._send(request, function.__name__)

    def _prepare(self, request: Request, function: Any) -> None:
        """A function of the main module needs that module in the child."""
        needed = preparation(function)
        if needed is not None and self._recipe.preparation is None:
            request.frame.add(Tag.PREPARATION, pickle.dumps(needed))

    def _send(self, request: Request, what: str) -> Child:
        frame = request.seal()
        try:
            if self.fallback and frame.get(Tag.TEMPLATE) is None:
                child: Child = self._execute_child(frame, what)
            else:
                child = self._fork_child(frame, what)
        except BaseException:
            request.abandon()
            raise
        request.sent()
        child.text_mode = request.text
        for name, pipe in request.pipes.items():
            setattr(child, name, pipe)
        return child

    def _fork_child(self, frame: Frame, what: str) -> Child:
        connection = self._alive()
        try:
            number = connection.request(frame)
        except Lost:  # nothing was sent: a new template may be asked
            connection = self._alive()
            number = connection.request(frame)
        return Child(connection, number, what)

    def _execute_child(self, frame: Frame, what: str) -> Child:
        """The fallback: a new interpreter cooks the recipe and becomes the child itself."""
        ours, theirs = pair()
        with ours, theirs:
            process = self._execute(replace(self._whole(), once=True), ours, theirs)
            _ready(Connection(ours), process, self._timeout)
            protocol.send(ours, frame)
        return Executed(process, what, frame.deadline())

    def _alive(self) -> Connection:
        with self._lock:
            if self._connection is None:
                raise ZygoteError("this zygote is closed")
            if self._connection.lost:
                self._start_template()
            return self._connection

    # What is known

    @property
    def lost(self) -> bool:
        """Whether the template is known to have ended; the next request makes a new one."""
        return self._connection is None or self._connection.lost

    def info(self) -> Dict[str, Any]:
        """The template's state: pid, threads, children, frozen bytes, reason."""
        connection = self._alive()
        try:
            number = connection.request(Frame(Kind.INFO))
            reply = connection.replies[number]
            connection.wait(lambda: reply.state is not None)
        except Lost:
            raise ZygoteError("the template has ended") from None
        connection.forget(number)
        state = reply.state or Frame(0)
        return {
            "pid": state.int(Tag.PROCESS),
            "threads": state.int(Tag.THREADS),
            "thread_names": _names(state),
            "children": state.int(Tag.CHILDREN),
            "frozen_bytes": state.int(Tag.FROZEN),
            "reason": (state.get(Tag.REASON) or b"").decode(),
            "library": str(_library.path() or ""),
        }


def _ready(connection: Connection, process: Any, timeout: Optional[float]) -> Frame:
    """Waits until the template has said what became of its recipe."""
    said = connection.ready
    try:
        done = connection.wait(lambda: bool(said.state or said.failed), timeout)
    except Lost:
        raise ZygoteError(f"the template ended with status {process.wait()}") from None
    except BaseException:
        process.kill()
        raise
    if said.failed is not None:
        process.wait()
        text = (said.failed.get(Tag.MESSAGE) or b"").decode()
        raise ZygoteError(f"the template could not be made:\n{text}")
    if not done:
        process.kill()
        process.wait()
        raise ZygoteError(f"the template was not ready after {timeout} seconds")
    return said.state or Frame(0)


def _names(state: Frame) -> List[str]:
    return [name.decode(errors="replace") for name in state.all(Tag.THREAD)]


def _fallback(state: Frame) -> str:
    """Why children of this template are not forked."""
    count = state.int(Tag.THREADS)
    if count < 2:
        return ""
    names = ", ".join(_names(state))
    return f"the template has {count} threads after its imports" + (names and f": {names}")


def _close(sock: socket.socket, process: Any) -> None:
    sock.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _result(child: Child, data: bytes) -> Any:
    if not data:
        raise ZygoteError(f"the child ended with status {child.returncode} and without a result")
    answer = pickle.loads(data)
    if answer[0]:
        return answer[1]
    error = answer[1]
    error.__cause__ = RuntimeError("in the child:\n" + answer[2])
    raise error
