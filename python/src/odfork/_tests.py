"""One test in a forked child: what goes in, what comes back, and what is said when nothing does."""

import faulthandler
import os
import pickle
import signal
import struct
import sys
import traceback
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable, List, NoReturn, Optional

import pytest

from . import _copies, _ending, _process, _template

try:
    from _pytest.subtests import failed_subtests_key as FAILED_SUBTESTS
except ImportError:  # before pytest 9
    FAILED_SUBTESTS: Any = None  # type: ignore[no-redef]

LENGTH = struct.Struct("<I")


@dataclass
class Ended:
    """How a child ended that has not said everything."""

    status: int
    trace: str
    seconds: float
    timeout: Optional[float] = None

    def __str__(self) -> str:
        code = os.waitstatus_to_exitcode(self.status)
        if self.trace.startswith("Timeout"):
            said = f"the test took longer than {self.timeout} s"
        elif code < 0:
            said = f"the test's process was ended by {_signal_name(-code)}"
        else:
            said = f"the test's process ended with status {code} before the test did"
        return f"{said}\n{self.trace}" if self.trace else said


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


@dataclass
class Answers:
    """What a test's child has said."""

    reports: List[Any] = field(default_factory=list)
    warnings: List[Any] = field(default_factory=list)
    coverage: Optional[bytes] = None
    stop: str = ""
    complete: bool = False
    ended: Optional[Ended] = None


class Box:
    """Memory files for what a child has to say. They outlive it: all of it can be read then."""

    def __init__(self) -> None:
        self.said, self.trace = os.memfd_create("odfork-reports"), os.memfd_create("odfork-trace")
        self.copies = os.memfd_create("odfork-copies")

    def empty(self) -> None:
        for fd in (self.said, self.trace):
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)

    def answers(self, config: Any) -> Answers:
        answers = Answers()
        _read(config, _content(self.said), answers)
        _add_coverage(answers.coverage)
        return answers

    def text(self) -> str:
        return _content(self.trace)[: 1 << 16].decode(errors="replace")

    def close(self) -> None:
        for fd in (self.said, self.trace, self.copies):
            os.close(fd)


def fork_test(child: Callable[[], NoReturn], forked: Callable[[], None], limit: Any) -> int:
    """Forks; the child's status. `forked` is called in the parent, right after the fork."""
    _process.flush()
    pid = _template.fork()
    if pid == 0:
        child()
    forked()
    return _template.wait(pid, limit)


class Sender:
    """The child's side of the memory file."""

    def __init__(self, config: Any, fd: int) -> None:
        self.config, self.fd = config, fd
        self.pid = os.getpid()

    def send(self, kind: str, value: Any) -> None:
        if os.getpid() != self.pid:  # a fork of the test's that went on where the test did
            os._exit(1)
        data = pickle.dumps((kind, value))
        view = memoryview(LENGTH.pack(len(data)) + data)
        while view:
            view = view[os.write(self.fd, view) :]

    def report(self, report: Any) -> None:
        """Sends it as it is. One that cannot be pickled goes as pytest-xdist would send it."""
        try:
            if report.longrepr is not None or report.user_properties:
                pickle.loads(pickle.dumps(report))
            self.send("report", report)
        except Exception:
            report.user_properties = [(name, str(value)) for name, value in report.user_properties]
            hook = self.config.hook
            data = hook.pytest_report_to_serializable(config=self.config, report=report)
            self.send("serialized", data)

    def subtests(self) -> None:
        """How many subtests failed: a test with one fails, which pytest finds out from this."""
        failed = None if FAILED_SUBTESTS is None else self.config.stash.get(FAILED_SUBTESTS, None)
        if failed:
            self.send("subtests", dict(failed))


def run_test(item: Any, test: Callable[[], None], box: Box, timeout: Optional[float]) -> NoReturn:
    """What a test's child does."""
    status, trace = 1, box.trace
    try:
        sender = Sender(item.config, box.said)
        ending = _ending.Ending()
        faulthandler.enable(file=trace)
        if timeout is not None:
            faulthandler.dump_traceback_later(timeout, exit=True, file=trace)
        coverage = _own_coverage()
        # Else the child's reporter would print.
        item.ihook.pytest_runtest_logreport = sender.report
        item.ihook.pytest_runtest_logstart = item.ihook.pytest_runtest_logfinish = _nothing
        stop = ""
        with warnings.catch_warnings(record=True) as log:
            try:
                test()
            except (pytest.exit.Exception, KeyboardInterrupt) as error:
                stop = str(error) or type(error).__name__
        for warning in log:
            _send_warning(sender, warning)
        if coverage is not None:
            sender.send("coverage", coverage())
        sender.subtests()
        sender.send("end", stop or str(item.session.shouldstop or ""))
        _copies.note(box.copies)
        ending.run()
        _process.flush()
        status = 0
    except BaseException:
        os.write(trace, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _nothing(**_told: Any) -> None:
    pass


def _send_warning(sender: Sender, warning: Any) -> None:
    try:
        sender.send("warning", warning.__dict__ if _plain(warning) else _told(warning))
    except Exception:
        sender.send("warning", _told(warning))


def _plain(warning: Any) -> bool:
    return type(warning.message).__module__ == "builtins" and warning.source is None


def _told(warning: Any) -> Any:
    """A warning that cannot be sent, in words: its class is one of the test's, perhaps."""
    kind = warning.category.__module__, warning.category.__name__
    place = dict(filename=warning.filename, lineno=warning.lineno)
    return dict(message=str(warning.message), category=kind, **place)


def _warning(told: Any) -> warnings.WarningMessage:
    """The warning, with a class of the same name when it came in words."""
    message, category = told["message"], told["category"]
    if isinstance(message, str):
        module, name = category
        category = type(name, (UserWarning,), {"__module__": module})
        message = category(message)
    return warnings.WarningMessage(message, category, told["filename"], told["lineno"])


def _content(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    data = b""
    while len(data) < size:
        part = os.pread(fd, size - len(data), len(data))
        if not part:
            break
        data += part
    return data


def _read(config: Any, data: bytes, answers: Answers) -> None:
    """What the child has said; the last message may be cut off by its end."""
    at = 0
    while at + LENGTH.size <= len(data):
        begin = at + LENGTH.size
        at = begin + LENGTH.unpack_from(data, at)[0]
        if at > len(data):
            return
        kind, value = pickle.loads(data[begin:at])
        if kind == "report":
            answers.reports.append(value)
        elif kind == "serialized":
            hook = config.hook
            answers.reports.append(hook.pytest_report_from_serializable(config=config, data=value))
        elif kind == "warning":
            answers.warnings.append(_warning(value))
        elif kind == "coverage":
            answers.coverage = value
        elif kind == "subtests":
            config.stash[FAILED_SUBTESTS].update(value)
        else:
            answers.stop, answers.complete = value, True


def _measuring() -> Any:
    module = sys.modules.get("coverage")
    return None if module is None else module.Coverage.current()


def _own_coverage() -> Optional[Callable[[], bytes]]:
    """In the child: lets coverage.py record into memory; the function gives what it has seen."""
    measuring = _measuring()
    if measuring is None:
        return None
    from coverage import CoverageData

    own = CoverageData(no_disk=True)
    measuring._data = own
    measuring._collector.use_data(own, None)
    return lambda: bytes(measuring.get_data().dumps())


def _add_coverage(data: Optional[bytes]) -> None:
    measuring = _measuring()
    if data is None or measuring is None:
        return
    from coverage import CoverageData

    seen = CoverageData(no_disk=True)
    seen.loads(data)
    measuring.get_data().update(seen)
    seen.close(force=True)
