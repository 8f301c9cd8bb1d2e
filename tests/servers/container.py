#!/usr/bin/env python3
"""examples/container: the commands of its services run as an ordinary user below Docker's filter.

    container.py target/release     the folder of the built programs; needs root

Filter and privileges are real (the place `docker` of tests/src/places.rs); files are those of this
machine, because no container engine is here. Memory is frozen at the first fork. Exit status 1:
something failed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
EXAMPLE = os.path.join(ROOT, "examples", "container")
sys.path.insert(0, EXAMPLE)
import worker  # noqa: E402
from common import FROZEN, until  # noqa: E402

FILL = "for i = 1, 60000 do redis.call('SET', i, string.rep('x', 500)) end"
JOBS = [7, 999_999, -1, 1_000_000]


def commands(stage):
    """Of each service of compose.yaml, in its order, with this machine's paths."""
    with open(os.path.join(EXAMPLE, "compose.yaml")) as file:
        found = re.findall(r"^  (\w+):\n    <<: .*\n    command: (\[[^]]*\])", file.read(), re.M)
    places = {"/run/example": stage, "/srv": EXAMPLE}
    for name, text in found:
        words = json.loads(text)
        for old, new in places.items():
            words = [word.replace(old, new) for word in words]
        yield name, words


def start(release, stage, words):
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
            "--no-new-privs", "--bounding-set=-all"]
    path = f"{stage}/bin:{os.environ['PATH']}"
    return subprocess.Popen([f"{release}/examples/confine", "docker", *user, *words],
                            env={**os.environ, "PATH": path, "ODFORK_FREEZE": "eager"},
                            start_new_session=True)


def stage_of(release):
    stage = tempfile.mkdtemp(prefix="odfork-container.")
    os.makedirs(f"{stage}/bin")
    for name in ("odfork", "libodfork.so"):
        shutil.copy(os.path.join(release, name), f"{stage}/bin")
    os.chmod(stage, 0o777)
    return stage


def process_of(word, stage):
    """The process, below the launchers, whose command line names this."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                words = file.read()
            with open(f"/proc/{pid}/status") as file:
                ours = "\nUid:\t65534" in file.read()
        except OSError:
            continue
        name = os.path.basename(words.replace("\0", " ").split(" ")[0])
        if ours and name.startswith(word) and stage in words:
            return pid
    return None


def try_it(release, stage, started):
    for name, words in commands(stage):
        started[name] = start(release, stage, words)
    assert list(started) == ["redis", "worker"], started
    redis = worker.connect(f"{stage}/redis")
    for job in JOBS:
        redis.ask("RPUSH", "jobs", str(job))
    answers = [redis.ask("BLPOP", "answers", "60")[1] for _ in JOBS]
    expected = ["word 7", "word 999999", "word 999999", "failed: 1000000"]
    yield "jobs are answered", answers == expected, answers
    redis.ask("EVAL", FILL, "0")
    redis.ask("BGSAVE")
    saved = until(lambda: os.path.exists(f"{stage}/dump.rdb"))
    yield "Redis has saved its data", saved, ""
    for word in ("redis-server", "python"):
        pid = until(lambda: process_of(word, stage))
        done = subprocess.run([f"{stage}/bin/odfork", "stats", pid], capture_output=True, text=True)
        yield f"{word}: {FROZEN}", FROZEN in done.stdout, done.stdout + done.stderr


def main(release):
    if os.geteuid() != 0 or not os.path.exists("/usr/bin/redis-server"):
        print("container: SKIPPED: needs root, and the Debian package redis-server")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    stage, started, outcomes = stage_of(release), {}, []
    try:
        for what, good, said in try_it(release, stage, started):
            outcomes.append(bool(good))
            print(f"container: {'ok' if good else 'FAILED'}: {what}", *([] if good else [said]))
    finally:
        for process in started.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(stage, ignore_errors=True)
    print(f"{sum(outcomes)} passed, {outcomes.count(False)} failed, 0 skipped")
    return int(not all(outcomes))


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
