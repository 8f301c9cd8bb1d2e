"""The template: a process that has imported everything and forks ready children.

main(DESCRIPTOR): the descriptor is a socket; the first frame on it holds the recipe. The process
is executed, so it has one thread and nothing of its client. It ends when its last client has gone.

It does one thing after the other: no thread, no lock, nothing a child could inherit half done.
"""

import errno
import os
import pickle
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from typing import Deque, Dict, List, Optional, Set, Tuple, Union

from .. import _copies, _process
from . import child, protocol, recipe
from .protocol import Frame, Kind, Tag

# No wait is longer: select() refuses what does not fit 31 bits of milliseconds.
LONGEST = 3600.0
# A template without a free descriptor looks for one again after so many seconds.
PAUSE = 0.1


@dataclass(eq=False)
class Client:
    """A connection, what waits to be sent on it, and the children it asked for."""

    sock: socket.socket
    waiting: Deque[Tuple[bytes, List[int]]] = field(default_factory=deque)
    children: Set[int] = field(default_factory=set)


@dataclass
class Running:
    request: int
    client: Optional[Client]
    deadline: Optional[float] = None


@dataclass(eq=False)
class Spare:
    """A child that was forked before it is asked for, and waits for its request."""

    pid: int
    pidfd: int
    sock: socket.socket

    def descriptors(self) -> List[int]:
        return [self.pidfd, self.sock.fileno()]

    def close(self) -> None:
        os.close(self.pidfd)
        self.sock.close()


class Template:
    """Serves clients until the last has gone."""

    def __init__(self, state: recipe.State, original: child.Original) -> None:
        self.state = state
        self.original = original
        self.selector = selectors.DefaultSelector()
        self.clients: Set[Client] = set()
        self.running: Dict[int, Running] = {}
        self.listener: Optional[socket.socket] = None
        self.paused: Optional[float] = None  # the listener, until then
        self.spare: Optional[Spare] = None
        self.spares = state.spares
        self.early: Optional[_copies.Early] = None
        wake, self.wake = socket.socketpair()
        self.waker = wake
        for sock in (wake, self.wake):
            sock.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        original.hold_interrupts()
        self.selector.register(self.wake, selectors.EVENT_READ, self._ended)

    # Connections

    def add(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        client = Client(sock)
        self.clients.add(client)
        self.selector.register(sock, selectors.EVENT_READ, client)
        self._send(client, self._described(Frame(Kind.READY)))

    def listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self.listener = listener
        self.selector.register(listener, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        assert self.listener is not None
        try:
            sock, _ = self.listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no descriptor is free: who connects waits
            self.selector.unregister(self.listener)
            self.paused = time.monotonic() + PAUSE
            return
        user = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if int.from_bytes(user[4:8], sys.byteorder) not in (os.getuid(), 0):
            sock.close()
            return
        self.add(sock)

    def _listen_again(self) -> None:
        if self.paused is not None and self.paused <= time.monotonic():
            self.paused = None
            if self.listener is not None:
                self.selector.register(self.listener, selectors.EVENT_READ, self._accept)

    def _gone(self, client: Client) -> None:
        """A client has left: its children do not outlive it, but for the detached."""
        self.selector.unregister(client.sock)
        client.sock.close()
        self.clients.discard(client)
        for pid in client.children:
            self.running[pid].client = None
            os.kill(pid, signal.SIGKILL)  # not reaped yet: the number is its own
        while client.waiting:
            _close(client.waiting.popleft()[1])

    # The loop

    def serve(self) -> None:
        while self.clients or self.listener is not None:
            if self.spares and self.spare is None:
                self._make_spare()
            self._listen_again()
            for key, events in self.selector.select(self._next_deadline()):
                if isinstance(key.data, Client):
                    self._client(key.data, events)
                else:
                    key.data()
            self._enforce()

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        if self.spare is not None:
            os.kill(self.spare.pid, signal.SIGKILL)
            os.waitpid(self.spare.pid, 0)
            self.spare.close()
        self.selector.close()
        self.wake.close()
        self.waker.close()

    def _client(self, client: Client, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(client)
        if events & selectors.EVENT_READ and client in self.clients:
            try:
                frame = protocol.receive(client.sock)
            except (BlockingIOError, ConnectionResetError):
                return  # reset: it left with frames unread; those it sent are still to be read
            except protocol.Incomplete as error:
                self._fail(client, error.request, str(error))
                return
            except (OSError, MemoryError, protocol.ProtocolError):
                frame = None
            if frame is None:
                self._gone(client)
                return
            try:
                self._request(client, frame)
            except Exception:  # whatever one client asks for, the others' children live
                traceback.print_exc()
                if client in self.clients:
                    self._gone(client)
            finally:
                frame.close()

    def _request(self, client: Client, frame: Frame) -> None:
        if frame.kind == Kind.SPAWN:
            self._spawn(client, frame)
        elif frame.kind == Kind.INFO:
            self._send(client, self._described(Frame(Kind.STATE, frame.request)))
        elif frame.kind == Kind.STOP:
            self._stop()
        else:
            self._fail(client, frame.request, f"kind {frame.kind} is not a request")

    def _stop(self) -> None:
        """No new clients; those there are served until they leave."""
        if self.listener is not None:
            if self.paused is None:
                self.selector.unregister(self.listener)
            self.listener.close()
            self.listener = None

    # Children

    def _spawn(self, client: Client, frame: Frame) -> None:
        deadline = frame.deadline()
        try:
            pid, pidfd = self._hand_over(frame) or self._fork(frame)
        except OSError as error:
            self._fail(client, frame.request, f"no child could be made: {error.strerror}")
            return
        until = None if deadline is None else time.monotonic() + deadline
        self.running[pid] = Running(frame.request, client, until)
        if frame.get(Tag.DETACHED) is None:
            client.children.add(pid)
        started = Frame(Kind.STARTED, frame.request).number(Tag.PROCESS, pid)
        started.descriptors.append(pidfd)
        self._send(client, started)

    def _fork(self, asked: Union[Frame, socket.socket], *more: int) -> Tuple[int, int]:
        """A child and its pidfd, without which nobody could signal it.

        `more`: descriptors that the child does not keep either.
        """
        parent, closed = os.getpid(), [*self._own_descriptors(), *more]
        pid = os.fork()
        if pid == 0:
            child.run(asked, parent, self.original, closed, self.early)
        try:
            return pid, os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            raise

    def _make_spare(self) -> None:
        """The next request finds a child that is there already, its first pages copied."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:  # no descriptor is free now
            return
        ours.setblocking(False)
        try:
            with theirs:
                pid, pidfd = self._fork(theirs, ours.fileno())
        except OSError:  # then each request forks
            self.spares = False
            ours.close()
        else:
            self.spare = Spare(pid, pidfd, ours)

    def rehearse(self) -> None:
        """A first child runs up to the call it is asked for, before anybody waits for one.

        It notes the pages that it writes on its way. Every spare child copies these before it is
        asked for: one call of the kernel in place of some hundred page faults.
        """
        if self.spares:
            self._make_spare()
        if self.spare is None:
            return
        noted = os.memfd_create("odfork-copies")
        frame = Frame(Kind.SPAWN).add(Tag.EXTRA)
        frame.add(Tag.CALL, pickle.dumps((child.rehearsed, (), {})))
        frame.add(Tag.TARGETS, b"".join(n.to_bytes(4, "little") for n in range(3)))
        frame.descriptors = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
        frame.descriptors += [os.dup(noted)]
        made = self._hand_over(frame)
        frame.close()
        if made is not None:
            os.close(made[1])
            os.waitpid(made[0], 0)
        self.early = _copies.Early(noted)
        self.early.learn()
        os.close(noted)

    def _hand_over(self, frame: Frame) -> Optional[Tuple[int, int]]:
        """The spare child takes the request; None when it cannot."""
        spare = self.spare
        # A spare ends with its template until it has read its request: not for the detached.
        if spare is None or frame.get(Tag.DETACHED) is not None:
            return None
        self.spare = None
        try:
            protocol.send(spare.sock, frame)
        except OSError:  # it has ended
            spare.close()
            return None
        spare.sock.close()
        return spare.pid, spare.pidfd

    def _own_descriptors(self) -> List[int]:
        own = [self.selector.fileno(), self.wake.fileno(), self.waker.fileno()]
        own += [c.sock.fileno() for c in self.clients]
        own += [fd for c in self.clients for _, fds in c.waiting for fd in fds]
        own += [] if self.spare is None else self.spare.descriptors()
        return own + ([] if self.listener is None else [self.listener.fileno()])

    def _ended(self) -> None:
        try:
            while self.wake.recv(4096):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.spare is not None and pid == self.spare.pid:
                self.spare.close()
                self.spare, self.spares = None, False  # the next one would end as well
            self._report(pid, status, usage)

    def _report(self, pid: int, status: int, usage) -> None:  # type: ignore[no-untyped-def]
        running = self.running.pop(pid, None)
        if running is None or running.client is None:
            return
        running.client.children.discard(pid)
        if running.client not in self.clients:
            return
        ended = Frame(Kind.EXITED, running.request)
        ended.number(Tag.PROCESS, pid).number(Tag.STATUS, status)
        times = (int(usage.ru_utime * 1e9), int(usage.ru_stime * 1e9), usage.ru_maxrss << 10)
        ended.add(Tag.USAGE, b"".join(t.to_bytes(8, "little") for t in times))
        self._send(running.client, ended)

    def _next_deadline(self) -> Optional[float]:
        times = [r.deadline for r in self.running.values() if r.deadline is not None]
        times += [] if self.paused is None else [self.paused]
        return min(LONGEST, max(0.0, min(times) - time.monotonic())) if times else None

    def _enforce(self) -> None:
        now = time.monotonic()
        for pid, running in self.running.items():
            if running.deadline is not None and running.deadline <= now:
                running.deadline = None
                os.kill(pid, signal.SIGKILL)

    # Answers

    def _described(self, frame: Frame) -> Frame:
        frame.number(Tag.PROCESS, os.getpid()).number(Tag.THREADS, len(self.state.threads))
        for name in self.state.threads[1:]:
            frame.add(Tag.THREAD, name.encode(errors="replace"))
        frame.number(Tag.CHILDREN, len(self.running)).number(Tag.FROZEN, self.state.frozen, 8)
        return frame.add(Tag.REASON, self.state.reason.encode())

    def _fail(self, client: Client, request: int, message: str) -> None:
        self._send(client, Frame(Kind.FAILED, request).add(Tag.MESSAGE, message.encode()))

    def _send(self, client: Client, frame: Frame) -> None:
        data, _ = protocol.pack(frame)
        client.waiting.append((data, frame.descriptors))
        self._flush(client)

    def _flush(self, client: Client) -> None:
        while client.waiting:
            data, descriptors = client.waiting[0]
            try:
                protocol.send_packed(client.sock, data, descriptors)
            except BlockingIOError:
                break
            except OSError as error:  # gone: the next read says so
                if error.errno == errno.ETOOMANYREFS:  # it takes nothing and would miss this
                    self._gone(client)
                    break
            _close(descriptors)
            client.waiting.popleft()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.waiting else 0)
        if client in self.clients and self.selector.get_key(client.sock).events != wanted:
            self.selector.modify(client.sock, wanted, client)


def _close(descriptors: List[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def serve(made: recipe.Recipe, sock: socket.socket, listener: Optional[socket.socket]) -> int:
    """Makes the template and serves; the exit status."""
    try:
        original = child.Original()
        state = recipe.cook(made)
    except BaseException as error:
        # Everything that went wrong, also SystemExit of an import, is the client's to see.
        _process.trim(error)
        text = traceback.format_exc()
        protocol.send(sock, Frame(Kind.FAILED).add(Tag.MESSAGE, text.encode()))
        return 1
    if made.once:
        return _once(state, original, sock)
    template = Template(state, original)
    template.rehearse()
    template.add(sock)
    if listener is not None:
        template.listen(listener)
    try:
        template.serve()
    finally:
        template.close()
    return 0


def _once(state: recipe.State, original: child.Original, sock: socket.socket) -> int:
    """Without a fork: this process becomes the child. Its maker waits for it."""
    ready = Frame(Kind.READY).number(Tag.PROCESS, os.getpid()).number(Tag.THREADS, 1)
    protocol.send(sock, ready)
    frame = protocol.receive(sock)
    if frame is None:
        return 0
    child.run(frame, 0, original, [sock.detach()])


def serve_child(made: recipe.Recipe, fd: int) -> None:
    """A child that is a template itself, with what its parent has imported."""
    os.set_inheritable(fd, False)
    serve(made, socket.socket(fileno=fd), None)


def _in_words(frame: Frame) -> recipe.Recipe:
    setup = frame.get(Tag.SETUP)
    return recipe.Recipe(
        imports=[name.decode() for name in frame.all(Tag.IMPORT)],
        setup=b"" if setup is None else pickle.dumps((setup.decode(), ())),
        path=[os.fsdecode(entry) for entry in frame.all(Tag.PATH)],
    )


def main(fd: int) -> int:
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    frame = protocol.receive(sock)
    if frame is None:
        return 0
    pickled = frame.get(Tag.TEMPLATE)
    made = _in_words(frame) if pickled is None else pickle.loads(pickled)
    listener = socket.socket(fileno=frame.descriptors.pop()) if frame.descriptors else None
    return serve(made, sock, listener)
