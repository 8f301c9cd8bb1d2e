"""The test suites of projects from PyPI: plain pytest, pytest --odfork, pytest-forked.

    compare.py FOLDER WHEEL [PROJECT]...     FOLDER: for environments and sources, kept between runs
    ROUNDS=3                                 times each is run; the rounds are interleaved

The outcome of each test must be that of plain pytest. One that is not steady in plain pytest is
named and does not count; outcomes of pytest-forked are told and decide nothing. Times are medians
of the processor time of the whole command, which other work on the machine changes less than the
clock. Closing line: N passed, N failed, N skipped.
"""

import collections
import os
import re
import resource
import statistics
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from typing import List

SECONDS = 1800


@dataclass
class Project:
    name: str
    version: str
    tests: str = "tests"
    needs: List[str] = field(default_factory=list)


PYTEST = "pytest==9.1.1"  # with 9.2 every test of pytest-forked 1.7.5 fails
FORKED = "pytest-forked==1.7.5"
PROJECTS = [
    Project("attrs", "26.1.0", needs=["hypothesis", "cloudpickle"]),
    Project("click", "8.5.1"),
    Project("msgpack", "1.2.4", tests="test"),  # its core is C
]
WAYS = {"plain": [], "odfork": ["--odfork"], "forked": ["--forked"]}
HEAD = "| project | tests | differ, odfork | differ, forked | plain | odfork | forked |"


def say(text):
    print(f"suites: {text}", flush=True)


class Stage:
    """The environment of one project, and its unpacked source."""

    def __init__(self, folder, wheel, project):
        self.folder = os.path.join(folder, f"{project.name}-{project.version}")
        self.bin = os.path.join(self.folder, "env", "bin")
        self.project = project
        self._prepare(os.path.abspath(wheel))

    def _prepare(self, wheel):
        project = self.project
        if not os.path.exists(self.bin):
            subprocess.run([sys.executable, "-m", "venv", os.path.dirname(self.bin)], check=True)
        pinned = f"{project.name}=={project.version}"
        self._pip("install", pinned, PYTEST, FORKED, *project.needs)
        self._pip("install", "--force-reinstall", "--no-deps", wheel)
        archives = os.path.join(self.folder, "archives")
        if not os.path.isdir(archives):
            plain = ["--no-deps", "--no-binary", project.name, "--dest", archives]
            self._pip("download", *plain, pinned)
        archive = os.path.join(archives, os.listdir(archives)[0])
        self.source = os.path.join(
            self.folder, re.sub(r"\.tar\.gz$", "", os.path.basename(archive))
        )
        if not os.path.isdir(self.source):
            with tarfile.open(archive) as tar:
                tar.extractall(self.folder, filter="data")

    def _pip(self, *arguments):
        subprocess.run([f"{self.bin}/pip", "-q", *arguments], check=True)

    def run(self, way):
        """Outcome of each test, and the processor seconds of the whole command."""
        results = os.path.join(self.folder, f"{way}.xml")
        if os.path.exists(results):
            os.unlink(results)
        command = [f"{self.bin}/python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--junitxml={results}", *WAYS[way], self.project.tests]
        env = {k: v for k, v in os.environ.items() if k not in ("ODFORK_LIB", "LD_PRELOAD")}
        log = os.path.join(self.folder, f"{way}.log")
        began = spent()
        with open(log, "w") as out:
            ran = subprocess.run(
                command,
                cwd=self.source,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
            )
        seconds = spent() - began
        outcomes = read_outcomes(results)
        outcomes["exit status"] = str(ran.returncode)
        return outcomes, seconds


def spent():
    """Processor time of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_outcomes(path):
    """By test: passed, or what junit's file says else; twice the same name gets a number."""
    found = {}
    if not os.path.exists(path):
        return found
    seen = collections.Counter()
    for case in xml.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        seen[name] += 1
        if seen[name] > 1:
            name += f" ({seen[name]})"
        told = [
            (c.get("type") or c.tag) if c.tag == "skipped" else c.tag
            for c in case
            if c.tag in ("failure", "error", "skipped")
        ]
        found[name] = ", ".join(sorted(told)) or "passed"
    return found


class Judge:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.rows = []

    def project(self, stage, rounds):
        shown = {way: collections.defaultdict(set) for way in WAYS}
        times = {way: [] for way in WAYS}
        for number in range(rounds):
            ways = list(WAYS)
            for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
                outcomes, seconds = stage.run(way)
                times[way].append(seconds)
                for name, outcome in outcomes.items():
                    shown[way][name].add(outcome)
        self.compare(stage.project, shown)
        self.rows.append(row(stage.project, shown, times))
        say(self.rows[-1])

    def compare(self, project, shown):
        plain, ours = shown["plain"], shown["odfork"]
        if len(plain) < 2:
            say(f"FAILED {project.name}: no test ran in plain pytest")
            self.failed += 1
        for name in sorted(plain.keys() | ours.keys()):
            expected, got = plain.get(name, set()), ours.get(name, set())
            if expected == got:
                self.passed += 1
            elif len(expected) > 1:
                say(f"unsteady {project.name}: {name}: plain {expected}, odfork {got}")
            else:
                say(f"DIFFERENT {project.name}: {name}: plain {expected}, odfork {got}")
                self.failed += 1


def row(project, shown, times):
    """A line of the table in docs/python.md."""
    plain = statistics.median(times["plain"])

    def told(way):
        seconds = statistics.median(times[way])
        low, high = min(times[way]), max(times[way])
        return f"{seconds:.1f} s ({low:.1f} to {high:.1f}), {seconds / plain:.2f}"

    def differing(way):
        names = (shown["plain"].keys() | shown[way].keys()) - {"exit status"}
        return sum(shown["plain"].get(n) != shown[way].get(n) for n in names)

    tests = len(shown["plain"]) - 1
    return (
        f"| {project.name} {project.version} | {tests} | {differing('odfork')} | "
        f"{differing('forked')} | {plain:.1f} s | {told('odfork')} | {told('forked')} |"
    )


def main():
    folder, wheel, *wishes = sys.argv[1:]
    judge = Judge()
    for project in PROJECTS:
        if wishes and project.name not in wishes:
            continue
        try:
            stage = Stage(os.path.abspath(folder), wheel, project)
        except subprocess.CalledProcessError as error:
            say(f"SKIPPED {project.name}: {error}")
            judge.skipped += 1
            continue
        judge.project(stage, int(os.environ.get("ROUNDS", "3")))
    say(HEAD)
    for line in judge.rows:
        say(line)
    print(f"{judge.passed} passed, {judge.failed} failed, {judge.skipped} skipped")
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main())
