"""A client's connection to a template: requests go out, answers go to who waits for them."""

import os
import select
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional

from . import protocol
from .protocol import Frame, Kind


@dataclass
class Reply:
    """What the template has said about one request."""

    started: Optional[Frame] = None
    ended: Optional[Frame] = None
    failed: Optional[Frame] = None
    state: Optional[Frame] = None


class Lost(Exception):
    """The template has gone."""


@dataclass
class Connection:
    """Any thread may use it. Whoever waits reads for all others; nobody reads when nobody waits."""

    sock: socket.socket
    replies: Dict[int, Reply] = field(default_factory=dict)
    lost: bool = False
    ready: Reply = field(default_factory=Reply)
    _last: int = 0
    _reading: bool = False
    _owner: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self.replies[0] = self.ready

    def request(self, frame: Frame) -> int:
        """Sends a request; its number."""
        self._check_owner()
        with self._changed:
            self._last += 1
            frame.request = self._last
            self.replies[frame.request] = Reply()
        try:
            with self._sending:
                protocol.send(self.sock, frame)
        except OSError as error:
            self.forget(frame.request)
            if self.sock.fileno() >= 0 and not isinstance(error, ConnectionError):
                raise  # one of the descriptors is none: the template is as well as before
            with self._changed:
                self.lost = True
            raise Lost(str(error)) from None
        except BaseException:
            self.forget(frame.request)
            raise
        return frame.request

    def wait(self, done: Callable[[], bool], timeout: Optional[float] = None) -> bool:
        """Waits until `done`; False after the timeout, Lost when it can never be."""
        self._check_owner()
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not done():
                if self.lost:
                    raise Lost("the template has gone")
                left = None if until is None else max(0.0, until - time.monotonic())
                if self._reading:
                    self._changed.wait(left)
                else:
                    self._read(left)
                if until is not None and time.monotonic() >= until:
                    return done()
        return True

    def _read(self, timeout: Optional[float]) -> None:
        """Reads one frame, the condition released meanwhile."""
        self._reading = True
        self._changed.release()
        frame, lost = None, False
        try:
            poller = select.poll()
            poller.register(self.sock, select.POLLIN)
            # Longer ones in parts: poll() takes 31 bits of milliseconds.
            if poller.poll(None if timeout is None else min(timeout, 1e6) * 1000):
                frame = protocol.receive(self.sock)
                lost = frame is None
        except (OSError, protocol.ProtocolError):
            lost = True
        finally:
            self._changed.acquire()
            self._reading = False
            self.lost = self.lost or lost
            if frame is not None:
                self._hand_over(frame)
            self._changed.notify_all()

    def _hand_over(self, frame: Frame) -> None:
        reply = self.replies.get(frame.request)
        if reply is None:
            frame.close()
        elif frame.kind == Kind.STARTED:
            reply.started = frame
        elif frame.kind == Kind.EXITED:
            reply.ended = frame
        elif frame.kind == Kind.FAILED:
            reply.failed = frame
        else:
            reply.state = frame

    def forget(self, request: int) -> None:
        """Answers to this request are of no interest any more."""
        with self._changed:
            self.replies.pop(request, None)

    def close(self) -> None:
        self.sock.close()

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError("a zygote belongs to the process that made it; make one here")


def pair() -> List[socket.socket]:
    return list(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
