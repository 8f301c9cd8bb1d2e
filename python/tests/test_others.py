"""pytest --odfork beside other plugins, and fixtures with threads, against plain pytest."""

import re

import pytest

REPEATED = """
import pathlib, pytest

@pytest.fixture(scope="session")
def shared():
    yield 5

@pytest.fixture(scope="module")
def broken_end():
    yield
    raise RuntimeError("the end")

def attempt(name):
    with open(name, "a") as out: out.write("x")
    return len(pathlib.Path(name).read_text())

@pytest.mark.parametrize("n", range(4))
def test_plain(shared, n):
    assert n != 2

@pytest.mark.flaky(reruns=3)
def test_third_time(shared):
    assert attempt("third") == 3

@pytest.mark.flaky(reruns=2)
def test_never(shared):
    attempt("never")
    assert 0

def test_last(broken_end):
    pass
"""

WAITS = """
import asyncio, pytest

@pytest.fixture(scope="session")
def shared():
    return 5

@pytest.mark.asyncio
@pytest.mark.parametrize("n", range(3))
async def test_waits(shared, n):
    await asyncio.sleep(0.001)
    assert n != 1

@pytest.mark.asyncio
async def test_starts(shared):
    process = await asyncio.create_subprocess_exec("true")
    assert await process.wait() == 0
"""

SERVED = """
import os, pytest, socketserver, socket, threading

class Answers(socketserver.BaseRequestHandler):
    def handle(self):
        self.server.seen.append(self.request.recv(9))
        self.request.sendall(b"ok")

@pytest.fixture(scope="session")
def maker():
    return os.getpid()

@pytest.fixture(scope="session")
def server(maker):
    with socketserver.TCPServer(("127.0.0.1", 0), Answers) as it:
        it.seen = []
        threading.Thread(target=it.serve_forever, daemon=True).start()
        yield it
        it.shutdown()

@pytest.fixture(scope="module")
def address(server):
    return server.server_address

@pytest.mark.parametrize("n", range(3))
def test_served(address, server, n):
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(b"%d" % n)
        assert client.recv(9) == b"ok"
    assert server.seen[-1] == b"%d" % n

def test_not_served(maker):
    assert PLAIN or os.getpid() != maker
"""


def run(pytester, *arguments):
    result = pytester.runpytest_subprocess("-rA", *arguments)
    found = re.findall(r"^(PASSED|FAILED|ERROR|RERUN) (\S+)", result.stdout.str(), re.M)
    return result, sorted(found)


def same(pytester, text, *more):
    pytester.makepyfile(text.replace("PLAIN", "True"))
    plain = run(pytester, *more)[1]
    for left in ("third", "never"):
        (pytester.path / left).unlink(missing_ok=True)
    pytester.makepyfile(text.replace("PLAIN", "False"))
    result, ours = run(pytester, "--odfork", *more)
    assert ours == plain
    return result


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["one", "xdist"])
def test_tests_that_are_repeated(pytester, more):
    pytest.importorskip("pytest_rerunfailures")
    result = same(pytester, REPEATED, *more)
    assert result.parseoutcomes()["rerun"] == 4
    assert len((pytester.path / "never").read_text()) == 3


def test_coroutines(pytester):
    pytest.importorskip("pytest_asyncio")
    same(pytester, WAITS).assert_outcomes(passed=3, failed=1)


def test_a_fixture_with_threads_is_made_in_each_child(pytester):
    result = same(pytester, SERVED)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["odfork: made in each child, for their threads: address, server"])
