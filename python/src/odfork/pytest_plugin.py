"""pytest --odfork: every test in a child of its own, fixtures of wider scope once, in the parent.

The parent collects, imports and runs the fixtures that more than one test shares; then it forks
for each test. What a test changes is gone with its child. Outcomes, output, durations and
properties come back as reports; a child that dies is a failure of its test alone.
"""

import contextlib
import gc
import os
import signal
import statistics
import sys
import time
from typing import Any, Iterator, List, Optional

import pytest
from _pytest.runner import CallInfo, runtestprotocol

from . import _library, _start
from ._tests import Answers, Ended, fork_test

GROWN = 8 << 20  # bytes of new memory that are worth freezing


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("odfork", "every test in a forked child")
    group.addoption(
        "--odfork", action="store_true", help="run every test in a forked child of its own"
    )
    group.addoption(
        "--odfork-timeout",
        type=float,
        metavar="SECONDS",
        help="kill a test's child after so long and say where it was",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: Any) -> None:
    """Starts again with the library loaded, once: it must be there from the start."""
    if not config.getoption("odfork") or _library.available() or hasattr(config, "workerinput"):
        return
    if "ODFORK_PYTEST" in os.environ:
        return
    environment, config.odfork_why = _start.preloaded(os.environ)
    if config.odfork_why:
        return
    environment["ODFORK_PYTEST"] = "1"
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    os.execve(sys.executable, _own_command(), environment)


def _own_command() -> List[str]:
    with open("/proc/self/cmdline", "rb") as command:
        arguments = command.read().split(b"\0")[:-1]
    return [sys.executable, *map(os.fsdecode, arguments[1:])]


def pytest_configure(config: Any) -> None:
    if config.getoption("odfork") and not config.getoption("usepdb"):
        config.pluginmanager.register(Plugin(config), "odfork-forks")


class Plugin:
    """Runs the tests of one session in children."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.timeout: Optional[float] = config.getoption("odfork_timeout")
        self.forks: List[float] = []
        self.frozen_at = 0
        os.environ.pop("ODFORK_PYTEST", None)

    def pytest_report_header(self) -> str:
        if not _library.available():
            why = getattr(self.config, "odfork_why", "") or "libodfork.so is not loaded"
            return f"odfork: every test in a child, by plain fork: {why}"
        return "odfork: every test in a child of its own"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        factory = getattr(self.config, "_tmp_path_factory", None)
        if factory is not None:
            factory.getbasetemp()  # else every child would make one
        gc.collect()
        gc.freeze()
        self._freeze()

    def _freeze(self) -> None:
        """Freezes what has been added since the last time, when that is much."""
        with open("/proc/self/statm", encoding="ascii") as statm:
            resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        if resident > self.frozen_at + GROWN:
            gc.freeze()
            _library.refreeze()
            self.frozen_at = resident

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = self._run(item, nextitem)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _run(self, item: Any, nextitem: Any) -> List[Any]:
        """The reports of one test."""
        prepared = _call(item, "setup", lambda: _shared_setup(item))
        if prepared.failed or prepared.skipped:
            torn = _call(item, "teardown", lambda: _shared_teardown(item, nextitem))
            return [prepared, torn]
        self._freeze()
        answers = self._in_child(item, nextitem)
        reports = list(answers.reports)
        for warning in answers.warnings:
            item.config.hook.pytest_warning_recorded.call_historic(
                kwargs=dict(
                    warning_message=warning, nodeid=item.nodeid, when="runtest", location=None
                )
            )
        if answers.ended is not None:
            reports.append(_crash_report(item, answers))
        torn = _call(item, "teardown", lambda: _shared_teardown(item, nextitem))
        if torn.failed:
            reports = [r for r in reports if r.when != "teardown" or r.failed] + [torn]
        elif answers.ended is not None:
            reports.append(torn)
        if answers.stop:
            item.session.shouldstop = answers.stop
        return reports

    def _in_child(self, item: Any, nextitem: Any) -> Answers:
        same = nextitem is not None and nextitem.parent is item.parent
        after = nextitem if same else item.parent
        alarm = signal.setitimer(signal.ITIMER_REAL, 0)  # of pytest-timeout: the child's now
        begin = time.perf_counter()

        def test() -> None:
            signal.setitimer(signal.ITIMER_REAL, *alarm)
            runtestprotocol(item, nextitem=after)

        def forked() -> None:
            self.forks.append(time.perf_counter() - begin)

        return fork_test(item, test, forked, self.timeout)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.forks:
            return
        fork = statistics.median(self.forks) * 1000
        line = f"odfork: {len(self.forks)} children, {fork:.2f} ms a fork (median)"
        why = _library.reason()
        if why and not _library.stats().frozen_bytes:
            line += f"; by plain fork: {why}"
        terminalreporter.write_line(line)


def _shared_setup(item: Any) -> None:
    """Collectors and fixtures that other tests may share: everything but function scope."""
    state = item.session._setupstate
    state.setup(item.parent)
    if not getattr(item, "_request", None):
        if not hasattr(item, "_initrequest"):
            return
        item._initrequest()
    known = item._fixtureinfo.name2fixturedefs
    state.stack[item] = ([], None)  # while its fixtures are made, the test counts as set up
    try:
        for name in item.fixturenames:
            definitions = known.get(name)
            if definitions and definitions[-1].scope != "function":
                item._request._get_active_fixturedef(name)
    finally:
        del state.stack[item]


def _shared_teardown(item: Any, nextitem: Any) -> None:
    item.session._setupstate.teardown_exact(nextitem)


def _call(item: Any, when: Any, work: Any) -> Any:
    """Does a part of the test's protocol in the parent; its report."""
    with _captured(item, when):
        ends = (pytest.exit.Exception, KeyboardInterrupt)
        info: Any = CallInfo.from_call(work, when=when, reraise=ends)
    return item.ihook.pytest_runtest_makereport(item=item, call=info)


@contextlib.contextmanager
def _captured(item: Any, when: str) -> Iterator[None]:
    capture = item.config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        yield
    else:
        with capture.item_capture(when, item):
            yield


def _crash_report(item: Any, answers: Answers) -> Any:
    """The failure of a test whose child ended without its reports."""
    capture = item.config.pluginmanager.getplugin("capturemanager")
    if capture is not None and capture.is_globally_capturing():
        for name, text in zip(("stdout", "stderr"), capture.read_global_capture()):
            item.add_report_section("call", name, text)
    done = {report.when for report in answers.reports}
    when: Any = "setup" if "setup" not in done else "teardown" if "call" in done else "call"
    ended: Ended = answers.ended or Ended(0, "", 0.0)

    def fail() -> None:
        pytest.fail(str(ended), pytrace=False)

    call: Any = CallInfo.from_call(fail, when=when)
    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    report.duration = ended.seconds
    return report
