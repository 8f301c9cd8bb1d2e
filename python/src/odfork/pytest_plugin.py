"""pytest --odfork: every test in a child of its own, fixtures of wider scope once, in the parent.

The parent collects, imports and runs the fixtures that more than one test shares; then it forks
for each test. What a test changes is gone with its child. Outcomes, output, durations and
properties come back as reports; a child that dies is a failure of its test alone.
"""

import contextlib
import functools
import gc
import os
import signal
import statistics
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, NoReturn, Optional

import pytest
from _pytest.runner import CallInfo

from . import _library, _process, _shared, _start
from ._template import GRACE, Order, Template
from ._tests import Answers, Box, Ended, fork_test, run_test

GROWN = 8 << 20  # bytes of new memory that are worth freezing
KNOWN = ("_pytest.", "pytest_timeout", "odfork.")  # may be around a test here and in its child


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
        plugin = Plugin(config)
        config.pluginmanager.register(plugin, "odfork-forks")
        config.pluginmanager.register(Around(plugin), "odfork-around")


class Plugin:
    """Runs the tests of one session in children."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.timeout: Optional[float] = config.getoption("odfork_timeout")
        self.forks: List[float] = []
        self.children = 0
        self.frozen_at = 0
        self.box = Box()
        self.numbers: Dict[int, int] = {}  # of items, by their id()
        self.template: Optional[Template] = None
        self.expected: Any = None  # the next test, if it needs what is set up for the last one
        self.in_child = False
        self.running: Any = None  # in a child: its test
        os.environ.pop("ODFORK_PYTEST", None)

    def pytest_report_header(self) -> str:
        if not _library.available():
            why = getattr(self.config, "odfork_why", "") or "libodfork.so is not loaded"
            return f"odfork: every test in a child, by plain fork: {why}"
        return "odfork: every test in a child of its own"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: Any) -> None:
        self.numbers = {id(item): number for number, item in enumerate(session.items)}
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

    def before(self, item: Any, nextitem: Any) -> None:
        """Makes a template when this test and the next one gain by it.

        That is outside of all that others do around a test, warnings and timers among it: a child
        of the template does those itself.
        """
        if self.in_child or self.template is not None and item is self.expected:
            return
        self._stop()
        if item is self.expected and _shared.same(item, nextitem) and self._may_be_ordered(item):
            self._freeze()
            _process.flush()
            begin = time.perf_counter()
            self.template = Template(
                lambda order: self._become(item.session, order), self.timeout, self.box.copies
            )
            self.forks.append(time.perf_counter() - begin)

    def _may_be_ordered(self, item: Any) -> bool:
        return (
            id(item) in self.numbers
            and _only_known(item)
            and signal.getitimer(signal.ITIMER_REAL)[0] == 0
            and threading.current_thread() is threading.main_thread()
        )

    def _stop(self) -> None:
        template, self.template = self.template, None
        if template is not None:
            template.stop()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._stop()

    def pytest_unconfigure(self) -> None:
        self.box.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        if self.in_child:
            self._run_test(item, nextitem)
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = self._run(item, nextitem)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _run(self, item: Any, nextitem: Any) -> List[Any]:
        """The reports of one test."""
        prepared: Any = None
        if self.template is None:
            prepared = _call(item, "setup", lambda: _shared.setup(item))
            if prepared.failed or prepared.skipped:
                self.expected = None
                torn = _call(item, "teardown", lambda: _shared.teardown(item, nextitem))
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
        self.expected = nextitem if _shared.same(item, nextitem) else None
        if self.expected is None:
            self._stop()  # it would keep what the fixtures give back
        torn = _call(item, "teardown", lambda: _shared.teardown(item, nextitem))
        if torn.failed:
            _take_over(reports, torn)
            reports = [r for r in reports if r.when != "teardown" or r.failed] + [torn]
        elif answers.ended is not None:
            reports.append(torn)
        for report in reports:
            if report.when == "setup" and prepared is not None:
                report.duration += prepared.duration
            elif report.when == "teardown" and report is not torn:
                _add(report, torn)
        if answers.stop:
            item.session.shouldstop = answers.stop
        return reports

    def _in_child(self, item: Any, nextitem: Any) -> Answers:
        after = nextitem if nextitem is not None and nextitem.parent is item.parent else item.parent
        alarm = signal.setitimer(signal.ITIMER_REAL, 0)  # of pytest-timeout: the child's now
        self.box.empty()
        self.children += 1
        begin = time.perf_counter()

        def child() -> NoReturn:
            signal.setitimer(signal.ITIMER_REAL, *alarm)
            self._run_test(item, after)

        def forked() -> None:
            self.forks.append(time.perf_counter() - begin)

        status: Optional[int]
        if self.template is not None:
            number = self.numbers.get(id(after), -1)
            order = self.numbers[id(item)], number, item.session.testsfailed
            _process.flush_streams()  # with -s, the dots of the tests before stand before this one
            status = self.template.run(order)
            if status is None or not self.template.lasts:
                self._stop()
        else:
            limit = None if self.timeout is None else self.timeout + GRACE
            status = fork_test(child, forked, limit)
        answers = self.box.answers(self.config)
        if not answers.complete:
            seconds = time.perf_counter() - begin
            died = int(signal.SIGKILL) if status is None else status
            answers.ended = Ended(died, self.box.text(), seconds, self.timeout)
        return answers

    def _become(self, session: Any, order: Order) -> NoReturn:
        """In a child of the template: the whole protocol of the test, as pytest would call it."""
        number, after, session.testsfailed = order
        item = session.items[number]
        nextitem = item.parent if after < 0 else session.items[after]
        self.in_child = True
        item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        raise RuntimeError("another plugin has taken the test")

    def _run_test(self, item: Any, nextitem: Any) -> NoReturn:
        def test() -> None:
            self.running = item
            self._others(item, nextitem)

        run_test(item, test, self.box, self.timeout)

    def _others(self, item: Any, nextitem: Any) -> None:
        """What pytest, or a plugin that repeats tests, does for a test; not what stands around."""
        made: Any
        for made in reversed(item.ihook.pytest_runtest_protocol.get_hookimpls()):
            if made.plugin is self or _is_around(made):
                continue
            given = {"item": item, "nextitem": nextitem}
            if made.function(*(given[name] for name in made.argnames)) is not None:
                return

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> None:
        """A shared fixture that a test asks for by name at run time ends with its child."""
        if self.running is not None and fixturedef.scope != "function":
            self.running.addfinalizer(functools.partial(fixturedef.finish, request=request))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.children:
            return
        fork = statistics.median(self.forks) * 1000
        number = f"{self.children} child{'' if self.children == 1 else 'ren'}"
        line = f"odfork: {number}, {fork:.2f} ms a fork (median)"
        why = _library.reason()
        if why and not _library.stats().frozen_bytes:
            line += f"; by plain fork: {why}"
        terminalreporter.write_line(line)
        if _shared.threaded:
            names = ", ".join(sorted(set(_shared.threaded.values())))
            terminalreporter.write_line(f"odfork: made in each child, for their threads: {names}")


class Around:
    """Stands around what all plugins do for a test."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Iterator[None]:
        self.plugin.before(item, nextitem)
        yield


def _only_known(item: Any) -> bool:
    """Whether what stands around a test may be done in its child as well as here."""
    return all(
        made.function.__module__.startswith(KNOWN)
        for made in item.ihook.pytest_runtest_protocol.get_hookimpls()
        if _is_around(made)
    )


def _is_around(made: Any) -> bool:
    return made.hookwrapper or getattr(made, "wrapper", False)


def _call(item: Any, when: Any, work: Any) -> Any:
    """Does a part of the test's protocol in the parent; its report.

    Plugins see a test in its child. Here they are told of what fails.
    """
    with _captured(item, when):
        ends = (pytest.exit.Exception, KeyboardInterrupt)
        info: Any = CallInfo.from_call(work, when=when, reraise=ends)
    if info.excinfo is None:
        return pytest.TestReport.from_item_and_call(item, info)
    return _made(item, info)


def _made(item: Any, info: Any) -> Any:
    """The report of what failed, as plugins make it."""
    make = item.ihook.pytest_runtest_makereport
    if info.when != "setup":  # they begin with that
        make(item=item, call=CallInfo.from_call(lambda: None, when="setup"))
    return make(item=item, call=info)


def _add(report: Any, torn: Any) -> None:
    """What shared fixtures said and took when they were taken down, to the child's report."""
    report.duration += torn.duration
    for name, text in torn.sections:
        if name.endswith(" teardown"):
            before = "".join(old for its, old in report.sections if its == name)
            report.sections = [one for one in report.sections if one[0] != name]
            report.sections.append((name, before + text))


def _take_over(reports: List[Any], torn: Any) -> None:
    """What the child's report of its teardown had, to the one that stands in its place."""
    for report in reports:
        if report.when == "teardown" and report.passed:
            _add(report, torn)
            torn.duration, torn.sections = report.duration, report.sections
            torn.user_properties = report.user_properties


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
    report = _made(item, call)
    report.duration = ended.seconds
    return report
