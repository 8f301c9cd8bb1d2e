"""pytest --odfork against plain pytest."""

import ctypes
import json
import mmap
import os
import re
import struct

import pytest

from odfork import _copies

TESTS = """
import os, pytest, signal, sys, time, unittest, warnings

made = []

@pytest.fixture(scope="session")
def model():
    print("making the model")
    made.append(os.getpid())
    yield {"made": made, "changed": 0}
    print("dropping the model")

@pytest.fixture(scope="module", params=["a", "b"])
def kind(request, model):
    return request.param

@pytest.fixture
def own(model):
    model["changed"] += 1
    return model["changed"]

def test_made_once(model):
    assert len(model["made"]) == 1

def test_changes(own):
    assert own == 1

def test_changes_are_not_seen(own):
    assert own == 1

@pytest.mark.parametrize("n", [1, 2])
def test_parameters(kind, n, tmp_path):
    (tmp_path / "file").write_text(kind)
    assert n

def test_fails(model, record_property):
    record_property("colour", "blue")
    print("said before")
    numbers = [1, 2]
    assert numbers == [1, 3]

def test_skips():
    pytest.skip("not today")

@pytest.mark.xfail
def test_expected():
    assert 0

@pytest.mark.xfail(strict=True)
def test_unexpected():
    pass

def test_warns():
    warnings.warn("careful")

@pytest.fixture(scope="module")
def broken():
    raise ValueError("no fixture")

def test_broken_1(broken):
    pass

def test_broken_2(broken):
    pass

@pytest.fixture(scope="module")
def broken_end():
    yield
    raise ValueError("no end")

class Old(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = [1]

    def test_one(self):
        self.shared.append(2)

    def test_two(self):
        with self.subTest("x"):
            self.assertEqual(self.shared[0], 1)

def test_last(broken_end):
    pass
"""

CRASHES = """
import os, signal, time

def test_before():
    pass

def test_dies():
    print("last words")
    os.kill(os.getpid(), signal.SIGSEGV)

def test_leaves():
    os._exit(3)

def test_hangs():
    time.sleep(600)

def test_after():
    pass
"""


def outcomes(result):
    """The short summary's lines, without order and messages."""
    found = re.findall(
        r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+)", result.stdout.str(), re.M
    )
    return sorted(found)


def run(pytester, *arguments):
    return pytester.runpytest_subprocess("-rA", *arguments)


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["one", "xdist"])
def test_outcomes_are_those_of_plain_pytest(pytester, more):
    pytester.makepyfile(TESTS.replace("own == 1", "own in (1, 2)"))
    plain, ours = run(pytester, *more), run(pytester, "--odfork", *more)
    assert outcomes(ours) == outcomes(plain)
    assert ours.parseoutcomes() == plain.parseoutcomes()


def test_output_and_details(pytester):
    pytester.makepyfile(TESTS)
    result = run(pytester, "--odfork", "--durations=3", "--junitxml=junit.xml")
    for line in (
        "*making the model*",
        "*assert ?1, 2? == ?1, 3?*",
        "*At index 1 diff: 2 != 3*",
        "*said before*",
        "*slowest 3 durations*",
        "*UserWarning: careful*",
        "odfork: 15 children*",
    ):
        result.stdout.fnmatch_lines([line])
    junit = (pytester.path / "junit.xml").read_text()
    assert 'name="colour" value="blue"' in junit
    assert result.parseoutcomes()["passed"] == 11


def test_crashes_are_failures_of_one_test(pytester):
    pytester.makepyfile(CRASHES)
    result = run(pytester, "--odfork", "--odfork-timeout=2")
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*signal 11 (SIGSEGV)*",
            "*Segmentation fault*",
            "*in test_dies*",
            "*last words*",
            "*ended with status 3*",
            "*longer than 2.0 s*",
            "*in test_hangs*",
        ]
    )


def test_stops_and_runs_the_last_failed(pytester):
    pytester.makepyfile(TESTS)
    result = run(pytester, "--odfork", "-x")
    assert result.parseoutcomes()["failed"] == 1
    again = run(pytester, "--odfork", "--lf")
    assert again.parseoutcomes()["failed"] >= 1 and "passed" not in again.parseoutcomes()


def test_exit_from_a_test(pytester):
    pytester.makepyfile("import pytest\ndef test_a(): pytest.exit('enough')\ndef test_b(): pass")
    result = run(pytester, "--odfork")
    assert "enough" in result.stdout.str() and "test_b" not in str(outcomes(result))


def test_timeouts_of_the_plugin(pytester):
    pytest.importorskip("pytest_timeout")
    pytester.makepyfile("import time\ndef test_a(): time.sleep(600)\ndef test_b(): pass")
    result = run(pytester, "--odfork", "--timeout=1")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Timeout*1.0s*"])


def test_coverage(pytester):
    pytest.importorskip("pytest_cov")
    pytester.makepyfile(lines="def f(x):\n    if x:\n        return 1\n    return 2\n")
    pytester.makepyfile("import lines\ndef test_a(): lines.f(0)\ndef test_b(): lines.f(1)")
    run(pytester, "--odfork", "--cov=lines", "--cov-report=json")
    files = json.loads((pytester.path / "coverage.json").read_text())["files"]
    assert files["lines.py"]["missing_lines"] == []


def test_without_the_library(pytester, monkeypatch):
    monkeypatch.setenv("ODFORK_LIB", "/nowhere")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    pytester.makepyfile("def test_a(): pass")
    result = run(pytester, "--odfork")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["odfork: *plain fork*was not found*"])


LIKE_EACH_OTHER = """
import os, pytest, socket, warnings

@pytest.fixture(scope="module", params=[1, 2])
def server(request):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        yield port
    # A process that still had the socket would keep its port.
    socket.create_server(("127.0.0.1", port)).close()

@pytest.fixture(scope="session")
def parents():
    return os.getpid()

@pytest.mark.parametrize("n", range(6))
def test_same(server, parents, n):
    assert os.getpid() != parents
    print("number", n, "of", os.environ["PYTEST_CURRENT_TEST"])
    assert n != 4

@pytest.mark.filterwarnings("error")
def test_errors(parents):
    with pytest.raises(UserWarning):
        warnings.warn("careful")

@pytest.mark.parametrize("n", range(3))
def test_only_warns(parents, n):
    warnings.warn(f"told {n}")

def test_parent_is_not_pytest(parents):
    assert os.getppid() != parents

def test_fork_that_goes_on(parents):
    if os.fork() == 0:
        return
    os.wait()
"""


def test_children_of_a_template(pytester):
    pytester.makepyfile(LIKE_EACH_OTHER)
    ours = run(pytester, "--odfork")
    ours.assert_outcomes(passed=16, failed=2, warnings=3)
    ours.stdout.fnmatch_lines(["number 4 of *test_same?1-4? (call)", "*told 2*"])
    assert "number 3" not in failures(ours)


def failures(result):
    return result.stdout.str().split("PASSES")[0]


def test_template_only_among_known_plugins(pytester):
    pytester.makeconftest(
        "import pytest\n"
        "@pytest.hookimpl(hookwrapper=True)\n"
        "def pytest_runtest_protocol(item):\n"
        "    with open('begun', 'a') as out: print(item.name, file=out)\n"
        "    yield\n"
    )
    pytester.makepyfile(
        "import os, pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def parent(): return os.getpid()\n"
        "@pytest.mark.parametrize('n', range(5))\n"
        "def test(n, parent): assert os.getppid() == parent\n"
    )
    run(pytester, "--odfork").assert_outcomes(passed=5)
    assert len((pytester.path / "begun").read_text().split()) == 5


def test_a_template_that_is_killed(pytester):
    pytester.makepyfile(
        "import os, pytest, signal\n"
        "@pytest.fixture(scope='session')\n"
        "def parent(): return os.getpid()\n"
        "@pytest.mark.parametrize('n', range(8))\n"
        "def test(n, parent):\n"
        "    if n == 3:\n"
        "        assert os.getppid() != parent\n"
        "        os.kill(os.getppid(), signal.SIGKILL)\n"
        "        signal.pause()\n"
    )
    result = run(pytester, "--odfork")
    result.assert_outcomes(passed=7, failed=1)
    result.stdout.fnmatch_lines(["*signal 9 (SIGKILL)*"])


def test_a_template_that_cannot_fork(pytester):
    pytester.makeconftest(
        "import os\n"
        "from odfork import _template\n"
        "spare, made = _template.Forks._spare, []\n"
        "def limited(self):\n"
        "    made.append(1)\n"
        "    if len(made) > 2: raise OSError\n"
        "    return spare(self)\n"
        "_template.Forks._spare = limited\n"
    )
    pytester.makepyfile(
        "import pytest\n@pytest.mark.parametrize('n', range(9))\ndef test(n): assert n != 5"
    )
    run(pytester, "--odfork").assert_outcomes(passed=8, failed=1)


def test_the_next_child_copies_what_the_last_one_did(pytester):
    if not may_copy_early():
        pytest.skip("MADV_POPULATE_WRITE: Linux 5.14")
    pytester.makeconftest(
        "import os, pytest\n"
        "from odfork import _copies\n"
        "copy = _copies.Early.copy\n"
        "def pages():\n"
        "    return sum(length for _, length in _copies.copied()) // _copies.PAGE\n"
        "def early(self):\n"
        "    before = pages()\n"
        "    copy(self)\n"
        "    with open('copied', 'a') as out: print(len(self.ranges), pages() - before, file=out)\n"
        "_copies.Early.copy = early\n"
    )
    pytester.makepyfile(
        "import pytest\n@pytest.mark.parametrize('n', range(5))\ndef test(n): assert n != 3"
    )
    run(pytester, "--odfork").assert_outcomes(passed=4, failed=1)
    lines = [map(int, line.split()) for line in open(pytester.path / "copied")]
    noted, pages = map(min, zip(*lines))
    assert noted > 20 and pages > 200, (noted, pages)


def may_copy_early():
    try:
        mmap.mmap(-1, mmap.PAGESIZE).madvise(_copies.MADV_POPULATE_WRITE)
    except OSError:
        return False
    return True


def test_an_older_kernel_copies_range_by_range(monkeypatch):
    calls = []

    class Libc:
        def madvise(self, begin, length, advice):
            calls.append((begin.value, length.value, advice))
            return 0

    monkeypatch.setattr(_copies, "_libc", Libc())
    monkeypatch.setattr(_copies, "_several", lambda *_: -1)
    _copies._copy(-1, [(4096, 8192), (65536, 4096)], b"")
    assert calls == [(4096, 8192, 23), (65536, 4096, 23)]


def test_only_what_the_template_maps_is_copied_early():
    place = mmap.mmap(-1, 4 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)
    shared = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    inside, of_others = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in (place, shared))
    ranges = (inside, mmap.PAGESIZE, of_others, mmap.PAGESIZE, 0, 0)
    noted = os.memfd_create("noted")
    os.write(noted, struct.pack("6Q", *ranges))
    early = _copies.Early(noted)
    early.learn()
    os.close(noted)
    assert early.ranges == [(inside, mmap.PAGESIZE)]


ENDINGS = """
import atexit, multiprocessing, os, pytest, tempfile, time, weakref

def note(text):
    with open("noted", "a") as out: print(text, file=out)

@pytest.fixture(scope="session")
def shared():
    return tempfile.TemporaryDirectory()  # ends with the session's process

@pytest.fixture(scope="session")
def late():
    note("up")
    yield
    note("down")

@pytest.mark.parametrize("n", range(3))
def test_asks_late(shared, request, n):
    assert os.path.isdir(shared.name)
    request.getfixturevalue("late")

@pytest.mark.parametrize("n", range(2))
def test_leaves(shared, n):
    atexit.register(note, "exit")
    test_leaves.directory = tempfile.TemporaryDirectory()
    note("directory " + test_leaves.directory.name)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    child.start()
    note(f"process {child.pid}")

def test_still_there(shared):
    assert os.path.isdir(shared.name)
"""


def test_what_a_test_leaves_ends_with_its_child(pytester):
    pytester.makepyfile(ENDINGS)
    run(pytester, "--odfork").assert_outcomes(passed=6)
    lines = (pytester.path / "noted").read_text().splitlines()
    assert lines[:6] == ["up", "down"] * 3
    assert lines.count("exit") == 2
    left = dict(line.split() for line in lines if " " in line)
    assert not os.path.exists(left["directory"])
    assert not os.path.exists(f"/proc/{left['process']}/exe")


WARNINGS = """
import threading, warnings

class Own(UserWarning):
    def __init__(self, text, more):
        super().__init__(text)

def test_own():
    warnings.warn(Own("of the test's", 1))

def test_of_pytest():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
"""


def test_warnings_keep_their_names(pytester):
    pytester.makepyfile(WARNINGS)
    run(pytester, "--odfork").stdout.fnmatch_lines(
        ["*: Own: of the test's", "*: PytestUnhandledThreadExceptionWarning: *"]
    )


def test_subtests(pytester):
    if not hasattr(pytest, "Subtests"):
        pytest.skip("pytest has subtests from 9 on")
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test(n, subtests):\n"
        "    with subtests.test(n=n): assert n != 2\n"
    )
    plain, ours = run(pytester), run(pytester, "--odfork")
    assert ours.parseoutcomes() == plain.parseoutcomes()
    ours.stdout.fnmatch_lines(["*test?2? (n=2)*", "*contains 1 failed subtest*"])


def test_a_report_that_cannot_be_pickled(pytester):
    pytester.makepyfile(
        "import threading\n"
        "def test_a(record_property): record_property('lock', threading.Lock())\n"
        "def test_b(record_property): record_property('lock', 1)\n"
    )
    result = run(pytester, "--odfork", "--junitxml=junit.xml")
    result.assert_outcomes(passed=2)
    assert "&lt;unlocked _thread.lock" in (pytester.path / "junit.xml").read_text()


def test_time_and_output_of_shared_fixtures(pytester):
    pytester.makepyfile(
        "import pytest, time\n"
        "@pytest.fixture(scope='session')\n"
        "def slow():\n"
        "    time.sleep(0.3)\n"
        "    yield\n"
        "    time.sleep(0.3)\n"
        "    print('session ends')\n"
        "@pytest.fixture\n"
        "def own():\n"
        "    yield\n"
        "    print('test ends')\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test(slow, own, n): pass\n"
    )
    result = run(pytester, "--odfork", "--durations=2", "--durations-min=0.1")
    lines = ["*s setup *test?0?", "*s teardown *test?2?"]
    result.stdout.fnmatch_lines_random(lines)
    assert result.stdout.str().count("Captured stdout teardown") == 3
    assert "test ends\nsession ends" in result.stdout.str()
