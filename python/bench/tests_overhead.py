"""What pytest --odfork adds to each test, with a session fixture of 1 GB.

A conftest notes the time between the ends of two tests, and the processor time of all processes
until the last has ended; a test does nothing. Plain pytest, odfork and the same plugin without
the library (stock fork) run in turn.
"""

import os
import statistics
import subprocess
import sys
import tempfile

import measure

CONFTEST = """
import os, pytest, resource, time, work

@pytest.fixture(scope="session")
def model():
    work.hold(int(os.environ["MEGABYTES"]))
    return work.held

times, used = [], []

def spent():
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both) * 1e3

def pytest_runtest_logfinish():
    times.append(time.perf_counter() * 1e3)
    used.append(spent())

def pytest_sessionfinish(session):  # no process of odfork's lives on here
    processor = (spent() - used[FIRST]) / (len(used) - 1 - FIRST)
    with open(os.environ["TIMES"], "w") as out:
        for before, after in list(zip(times, times[1:]))[FIRST:]:
            print(after - before, processor, file=out)
"""
FIRST = 5  # tests that do not count: they freeze
TESTS = """
import pytest

@pytest.mark.parametrize("n", range(COUNT))
def test(model, n):
    assert model[0][8] is not None
"""
WAYS = {
    "plain pytest": ([], {}),
    "odfork": (["--odfork"], {}),
    "stock fork": (["--odfork"], {"ODFORK_LIB": "/nowhere", "LD_PRELOAD": ""}),
}


def one_run(folder, megabytes, arguments, variables):
    """Milliseconds between the ends of two tests, and of processor time: the mean of this run."""
    times = os.path.join(folder, "times")
    env = {**os.environ, **variables, "TIMES": times, "MEGABYTES": str(megabytes)}
    env["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
    with open(times) as lines:
        return [tuple(map(float, line.split())) for line in lines]


def run(verdicts, megabytes, rounds):
    print(f"pytest: a test that does nothing beside a session fixture of {megabytes} MB")
    seen = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("conftest.py", CONFTEST), ("test_nothing.py", TESTS)):
            with open(os.path.join(folder, name), "w") as out:
                text = text.replace("FIRST", str(FIRST))
                out.write(text.replace("COUNT", str(max(40, rounds // 3))))
        for _ in range(3):
            for name, (arguments, variables) in WAYS.items():
                seen[name] += one_run(folder, megabytes, arguments, variables)
    for at, clock in enumerate(("clock", "processor time")):
        medians = []
        for name, samples in seen.items():
            one = [sample[at] for sample in samples]
            measure.shown(f"{name}, {clock}", one)
            medians.append(statistics.median(one))
        plain, ours, stock = medians
        verdicts.at_most(f"pytest --odfork, added to each test, {clock}", ours - plain, 2, " ms")
        times = (stock - plain) / (ours - plain)
        verdicts.at_least(f"the same by stock fork, times, {clock}", times, 20)
