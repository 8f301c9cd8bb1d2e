"""CPython's own tests of what forks, of memory, threads and signals (Debian's package of them)."""

import os
import xml.etree.ElementTree as xml

NAME = "cpython"
PYTHON = "/usr/bin/python3"
UNITS = ["test_fork1", "test_wait3", "test_wait4", "test_os", "test_posix", "test_subprocess",
         "test_multiprocessing_fork", "test_threading", "test_mmap", "test_gc", "test_pty",
         "test_signal", "test_faulthandler", "test_concurrent_futures", "test_socketserver"]
SECONDS = 1500


def missing():
    found = os.popen(f"{PYTHON} -c 'import test.test_fork1' 2>&1").read()
    return "install the Debian package libpython3.11-testsuite" if found else None


def run(unit, stage):
    command = [*stage.launcher, PYTHON, "-m", "test", "--junit-xml", "results.xml",
               "-u", "network", "--tempdir", stage.folder, unit]
    status = stage.run(command, SECONDS)
    results = {"exit status": str(status)}
    path = os.path.join(stage.folder, "results.xml")
    if not os.path.exists(path):
        return results
    for case in xml.parse(path).getroot().iter("testcase"):
        bad = {child.tag for child in case} & {"error", "failure", "skipped"}
        name = case.get("name")
        # Subtests have the name of their test: the worst outcome of all is its outcome.
        results[name] = max(results.get(name, ""), ", ".join(sorted(bad)) or "")
    return {name: outcome if outcome != "" else "ok" for name, outcome in results.items()}
