"""The handle of a child, shaped like subprocess.Popen."""

import fcntl
import os
import selectors
import signal
import struct
import subprocess
import threading
import time
from typing import Optional

from .connection import Connection, Lost
from .protocol import Frame, Tag

PIDFD_GET_INFO = 0xC040FF0B
PIDFD_INFO_EXIT = 1 << 3
INFO = struct.Struct("<QQ11Ii")


class ZygoteError(Exception):
    """A template could not be made, or could not start a child."""


class Child(subprocess.Popen):  # type: ignore[type-arg]
    """A process that a template has forked. Its status comes from the template, its parent.

    What Popen does with streams is inherited; starting, waiting and signals are done here.
    """

    returncode: Optional[int]

    def _describe(self, what: str) -> None:
        """What Popen's own constructor would set, for communicate() and the others."""
        self.args = self._what = what
        self.stdin = self.stdout = self.stderr = None
        self.returncode = None
        self.text_mode = False
        self._communication_started = False
        self._input = None
        self._sigint_wait_secs = 0.25
        self.user_time = self.system_time = 0.0
        self.largest_resident = 0

    def __init__(self, connection: Connection, request: int, what: str) -> None:
        self._describe(what)
        self._connection = connection
        self._request = request
        self._reply = connection.replies[request]
        self._pidfd = -1
        try:
            connection.wait(lambda: bool(self._reply.started or self._reply.failed))
        except Lost:
            raise ZygoteError("the template ended before it could start the child") from None
        if self._reply.failed is not None:
            connection.forget(request)
            raise ZygoteError((self._reply.failed.get(Tag.MESSAGE) or b"").decode())
        started = self._reply.started or Frame(0)
        self.pid = started.int(Tag.PROCESS)
        self._pidfd = started.descriptors.pop() if started.descriptors else -1

    def fileno(self) -> int:
        """The pidfd: readable when the child has ended. -1 once its status was taken."""
        return self._pidfd

    def poll(self) -> Optional[int]:
        """The exit status, or None while the child runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the end; the exit status, negative for the signal that ended the child."""
        if self.returncode is None:
            try:
                if not self._connection.wait(lambda: self._reply.ended is not None, timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                self._take(self._reply.ended or Frame(0))
            except Lost:
                self._wait_alone(timeout)
        assert self.returncode is not None
        return self.returncode

    _wait = wait  # by this name it is called after Ctrl-C

    async def wait_async(self) -> int:
        """As wait(), for asyncio."""
        if self.returncode is None and self._pidfd >= 0:
            await readable(self._pidfd)
        return self.wait()

    def _take(self, ended: Frame) -> None:
        usage = ended.get(Tag.USAGE) or bytes(24)
        user, system, self.largest_resident = struct.unpack("<QQQ", usage)
        self.user_time, self.system_time = user / 1e9, system / 1e9
        self._settle(os.waitstatus_to_exitcode(ended.int(Tag.STATUS)))

    def _wait_alone(self, timeout: Optional[float]) -> None:
        """Without the template: the kernel keeps the status of a reaped child in its pidfd."""
        poller = selectors.DefaultSelector()
        with poller:
            if self._pidfd >= 0:
                poller.register(self._pidfd, selectors.EVENT_READ)
                # Seconds that fit: a month for all longer ones.
                if not poller.select(None if timeout is None else min(timeout, 2e6)):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self._settle(_status_of(self._pidfd, self.pid))

    def _settle(self, returncode: int) -> None:
        self.returncode = returncode
        self._release()

    def _release(self) -> None:
        self._forget()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _forget(self) -> None:
        self._connection.forget(self._request)

    def send_signal(self, number: int) -> None:
        """Sends a signal; nothing happens when the child has ended."""
        if self.returncode is None and self._pidfd >= 0:
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                pass

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        if getattr(self, "_pidfd", -1) >= 0:
            self._release()

    def __repr__(self) -> str:
        return f"<Child {self.pid} of a zygote: {self._what}, returncode {self.returncode}>"


class Executed(Child):
    """A child that was executed because the template could not be forked."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", what: str, deadline: Optional[float]
    ) -> None:
        self._describe(what)
        self.pid = process.pid
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._timer = threading.Timer(deadline or 0, self.kill)
        self._timer.daemon = True
        if deadline is not None:
            self._timer.start()

    def wait(self, timeout: Optional[float] = None) -> int:
        self.returncode = self._process.wait(timeout)
        self._release()
        return self.returncode

    _wait = wait

    def poll(self) -> Optional[int]:
        return None if self._process.poll() is None else self.wait()

    def _forget(self) -> None:
        self._timer.cancel()


def _status_of(pidfd: int, pid: int) -> int:
    """The status of a child that has lost its template and ended.

    The kernel gives it while the new parent has not reaped the child, and from Linux 6.15 on by the
    pidfd afterwards. Before, a child that was running has been killed.
    """
    for _ in range(200):  # the two differ by a moment
        status = _unreaped(pidfd, pid)
        if status is None:
            status = _reaped(pidfd)
        if status is not None:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return -int(signal.SIGKILL)


def _unreaped(pidfd: int, pid: int) -> Optional[int]:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        if not _may_look_at(pid):  # then the status reads as 0
            return None
        signal.pidfd_send_signal(pidfd, 0)  # else the number may be another process's by now
    except OSError:
        return None
    return int(fields[-1]) if fields[0] == "Z" else None


def _may_look_at(pid: int) -> bool:
    try:
        os.readlink(f"/proc/{pid}/exe")
    except PermissionError:
        return False
    except OSError:  # it has none any more
        pass
    return True


def _reaped(pidfd: int) -> Optional[int]:
    buffer = bytearray(INFO.pack(PIDFD_INFO_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    mask, *_rest, code = INFO.unpack(buffer)
    return int(code) if mask & PIDFD_INFO_EXIT else None


async def readable(fd: int) -> None:
    import asyncio  # with its libraries it would make each fork of a template dearer

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
