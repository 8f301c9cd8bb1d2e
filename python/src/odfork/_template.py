"""The process that forks the children of tests which need the same shared fixtures.

pytest's own process makes one with the fixtures set up, and gives it the numbers of tests. It does
nothing else, so few of its pages are copied for each child, and pytest's own none. One child waits
ready for the next number; it is forked while the test before it runs.

    pytest   --orders-->   the waiting child, which becomes that test's
             <-answers--   the template, when that child has ended: its status

The waiting child ends when pytest closes the orders; then the template ends too. Nothing of the
template outlives stop(), so fixtures can be taken down afterwards.
"""

import gc
import os
import select
import signal
import struct
import warnings
from typing import Callable, List, NoReturn, Optional, Tuple

from . import _copies, _process

ORDER = struct.Struct("<iii")  # the test, the next one or -1, how many have failed
ANSWER = struct.Struct("<I?")  # the child's status, whether another one can follow
GRACE = 2.0  # seconds between a child's own end by timeout and its end by SIGKILL

Order = Tuple[int, int, int]
Run = Callable[[Order], NoReturn]


def fork() -> int:
    """os.fork(), which warns of threads that the summary tells of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def wait(pid: int, timeout: Optional[float]) -> int:
    """The child's status. A child that takes longer is killed, after Ctrl-C as well."""
    pidfd = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    ended: List[object] = []
    try:
        ended = list(poller.poll(None if timeout is None else timeout * 1000))
    except BaseException:  # the child has got it too
        ended = list(poller.poll(GRACE * 1000))
        raise
    finally:
        os.close(pidfd)
        if not ended:
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    return status


class Template:
    """The side of pytest's process. `run` is what a child does with an order; it never returns."""

    def __init__(self, run: Run, timeout: Optional[float], copies: int) -> None:
        orders, self.orders = os.pipe()
        self.answers, answers = os.pipe()
        self.lasts = True  # it takes another order
        parent = os.getpid()
        self.pid = fork()
        if self.pid == 0:
            os.close(self.orders)
            os.close(self.answers)
            Forks(run, timeout, orders, answers, copies).serve(parent)
        os.close(orders)
        os.close(answers)
        self.ends = os.pidfd_open(self.pid)
        self.poller = select.poll()
        self.poller.register(self.answers, select.POLLIN)
        self.poller.register(self.ends, select.POLLIN)

    def run(self, order: Order) -> Optional[int]:
        """Has a test run. The child's status; None when the template has died, and it as well."""
        try:
            os.write(self.orders, ORDER.pack(*order))
            return self._answer(None)
        except BrokenPipeError:
            return None
        except BaseException:  # Ctrl-C: the child has got it too
            self._answer(GRACE)
            os.kill(self.pid, signal.SIGKILL)  # its children go with it
            raise

    def _answer(self, seconds: Optional[float]) -> Optional[int]:
        ready = self.poller.poll(None if seconds is None else seconds * 1000)
        if self.answers not in dict(ready):
            return None
        data = os.read(self.answers, ANSWER.size)
        if not data:
            return None
        status, self.lasts = ANSWER.unpack(data)
        return int(status)

    def stop(self) -> None:
        """Ends the template and the child that waits."""
        os.close(self.orders)
        os.waitpid(self.pid, 0)
        os.close(self.answers)
        os.close(self.ends)


class Forks:
    """The template's own side."""

    def __init__(
        self, run: Run, timeout: Optional[float], orders: int, answers: int, copies: int
    ) -> None:
        self.run, self.timeout = run, timeout
        self.early = _copies.Early(copies)
        self.orders, self.answers = orders, answers
        self.interrupt = signal.getsignal(signal.SIGINT)

    def serve(self, parent: int) -> NoReturn:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _process.end_with(parent)
            gc.freeze()
            limit = None if self.timeout is None else self.timeout + GRACE
            pid, taken = self._spare()
            while pid and os.read(taken, 1):
                os.close(taken)
                running = pid
                try:
                    pid, taken = self._spare()
                except OSError:  # too many processes: pytest forks the next one itself, or fails
                    pid = 0
                status = wait(running, limit)
                os.write(self.answers, ANSWER.pack(status, pid != 0))
            if pid:
                os.waitpid(pid, 0)
        finally:
            os._exit(0)

    def _spare(self) -> Tuple[int, int]:
        """A child that waits for an order, and the pipe in which it says that it has one."""
        self.early.learn()
        taken, take = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            os.close(take)
            return pid, taken
        try:
            _process.end_with(parent)
            os.close(taken)
            self.early.copy()
            data = os.read(self.orders, ORDER.size)
            if data:
                os.write(take, b"t")
                os.close(take)
                os.close(self.orders)
                signal.signal(signal.SIGINT, self.interrupt or signal.default_int_handler)
                self.run(ORDER.unpack(data))
        finally:
            os._exit(0)
