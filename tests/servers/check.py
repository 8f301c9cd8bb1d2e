#!/usr/bin/env python3
"""docs/servers.md: every command of it is run, every unit is verified and started.

    check.py target/release     the folder of the built programs; needs root

Units and containers are started in the place that the page names before them (tests/src/places.rs):
filters and privileges are real, a service manager or a container's own files are not. Memory is
frozen at the first fork (ODFORK_FREEZE=eager), because nobody waits here until forks have cost
enough. Exit status 1: something failed.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "give"))
import redis_bgsave  # noqa: E402
from common import FROZEN, until  # noqa: E402

PAGE = os.path.join(ROOT, "docs", "servers.md")
UNITS = "/lib/systemd/system"
passed, failed, skipped = 0, 0, 0


def check(what, good, said=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print(
        f"servers: {'ok' if good else 'FAILED'}: {what}" + (f": {said}" if not good else ""),
        flush=True,
    )


def skip(why):
    global skipped
    skipped += 1
    print(f"servers: SKIPPED: {why}", flush=True)


def blocks(text):
    """(language, lines, place named last before it) of each block of code."""
    found, place, lines, language = [], None, None, None
    for line in text.splitlines():
        if line.startswith("```"):
            if lines is None:
                language, lines = line[3:], []
            else:
                found.append((language, lines, place))
                lines = None
        elif lines is not None:
            lines.append(line)
        elif "Place:" in line:
            place = line.split("Place:")[1].split("`")[1]
    return found


class Stage:
    """A folder that any user may read: what `make install` would have put below /usr/local, and
    room for servers.
    """

    def __init__(self, release):
        self.folder = tempfile.mkdtemp(prefix="odfork-servers.")
        os.chmod(self.folder, 0o755)
        for name, inner in (("odfork", "bin"), ("libodfork.so", "lib")):
            os.makedirs(os.path.join(self.folder, inner), exist_ok=True)
            shutil.copy(os.path.join(release, name), os.path.join(self.folder, inner, name))
        self.odfork = os.path.join(self.folder, "bin", "odfork")
        self.confine = os.path.join(release, "examples", "confine")

    def here(self, text):
        return text.replace("/usr/local", self.folder)

    def room(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path)
        os.chmod(path, 0o777)
        return path

    def stats(self, pid, *more):
        done = subprocess.run(
            [self.odfork, "stats", str(pid), *more], capture_output=True, text=True
        )
        return done.stdout + done.stderr


class Started(redis_bgsave.Server):
    """A redis-server through other words; `environment` as the page has it."""

    command = []

    def __init__(self, stage, folder, place, environment):
        words = [f"{name}={value}" for name, value in environment.items()]
        type(self).command = [stage.confine, place, "/usr/bin/env", "ODFORK_FREEZE=eager", *words]
        super().__init__(folder, {})

    def pid(self):
        return int(self.info("server", "process_id"))


def server_in(stage, name, place, environment, commands):
    """Starts it, has it make dumps, asks what the page asks, switches odfork off, loads the last
    dump.
    """
    folder = stage.room(name)
    server = Started(stage, folder, place, environment)
    try:
        server.ask("DEBUG", "POPULATE", 60000, "key", 500)
        server.save()
        server.save()
        said = stage.stats(server.pid())
        check(f"{name}: {FROZEN}", FROZEN in said, said)
        for line in commands:
            run_line(stage, server, line)
        stage.stats(server.pid(), "--plain")
        server.save()
        said = stage.stats(server.pid())
        check(f"{name}: plain on demand", "engine plain" in said and "frozen 0.0 MB" in said, said)
        server.ask("SET", "last", "1")
        server.save()
        digest = server.ask("DEBUG", "DIGEST")
    finally:
        server.stop()
    again = redis_bgsave.Server(folder, {})
    check(f"{name}: its dump is loaded by a stock server", again.ask("DEBUG", "DIGEST") == digest)
    again.stop()


class Launched(redis_bgsave.Server):
    """A redis-server by the launcher, in a place."""

    def __init__(self, stage, folder, place, line):
        words = line.split()
        launch = [stage.odfork, *words[1 : words.index("redis-server")]]
        type(self).command = [stage.confine, place, *launch]
        super().__init__(folder, {})

    def pid(self):
        return int(self.info("server", "process_id"))


def count(stage, pid, name):
    """A number that `odfork stats` has of the server."""
    said = stage.stats(pid, "--format", "prometheus")
    found = [line.split() for line in said.splitlines() if line.startswith(f"odfork_{name}{{")]
    return float(found[0][-1]) if found else 0.0


def live(stage, place, line):
    """The server of that line writes between its dumps: it freezes and refreezes while it waits,
    and each dump is of its moment.
    """
    folder = stage.room(f"live-{place}")
    server = Launched(stage, folder, place, line)
    try:
        server.ask("DEBUG", "POPULATE", 60000, "key", 500)
        server.save()
        until(lambda: count(stage, server.pid(), "live_bytes") > 20 << 20)
        server.ask("EVAL", "for n = 1, 20000 do redis.call('SET', 'key:' .. n * 3, n) end", 0)
        server.ask("BGSAVE")
        moment = server.ask("DEBUG", "DIGEST")
        server.ask("EVAL", "for n = 1, 20000 do redis.call('SET', 'key:' .. n, 'later') end", 0)
        until(lambda: server.info("persistence", "rdb_bgsave_in_progress") == "0")
        os.rename(os.path.join(folder, "dump.rdb"), os.path.join(folder, "moment.rdb"))
        until(lambda: count(stage, server.pid(), "refreeze_bytes_total") > 1 << 20)
        server.save()
        digest = server.ask("DEBUG", "DIGEST")
    finally:
        server.stop()
    for dump, wanted in ("moment.rdb", moment), ("dump.rdb", digest):
        again = redis_bgsave.Server(folder, {}, dump)
        check(f"live in '{place}': {dump} is of its moment", again.ask("DEBUG", "DIGEST") == wanted)
        again.stop()


def run_line(stage, server, line):
    """A command of the page, for a server that runs."""
    words = line.replace("PID", str(server.pid()))
    words = words.replace("odfork ", stage.odfork + " ", 1) if words.startswith("odfork") else words
    words = words.replace("redis-cli", f"redis-cli -s {server.path}")
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", words], capture_output=True, text=True, timeout=120
    )
    check(line, done.returncode == 0 and done.stdout.strip(), done.stdout + done.stderr)


def container(line):
    """Environment and device of `docker run`; an option that is not known here is a fault."""
    words = line.split()[2:]
    environment, device = {}, False
    while words[0] != "IMAGE":
        option, value = words[0], words[1]
        if option == "-e":
            name, _, value = value.partition("=")
            environment[name] = value
        elif (option, value) == ("--device", "/dev/userfaultfd"):
            device = True
        else:
            raise ValueError(f"what {option} does is not known here: {line}")
        words = words[2:]
    return environment, device, words[1:]


def verify(stage, path, lines):
    """The unit with its drop-in, by systemd's own reader. Returns the lines' settings."""
    units = tempfile.mkdtemp(prefix="units.", dir=stage.folder)
    parts = path.split("/systemd/system/")[1]
    target = os.path.join(units, parts)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    unit = parts.split(".d/")[0]
    if ".d/" in parts:
        if not os.path.exists(f"{UNITS}/{unit}"):
            return skip(f"{unit} is not here to be changed; install the package")
        shutil.copy(f"{UNITS}/{unit}", units)
    with open(target, "w") as file:
        file.write(stage.here("\n".join(lines)) + "\n")
    if not shutil.which("systemd-analyze"):
        return skip("systemd-analyze: install the Debian package systemd")
    search = {**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:{UNITS}"}
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", os.path.join(units, unit)],
        env=search,
        capture_output=True,
        text=True,
    )
    said = "\n".join(l for l in (done.stdout + done.stderr).splitlines() if units in l or unit in l)
    check(f"systemd-analyze verify {unit}", not said, said)


def settings(lines, name):
    return [line.split("=", 1)[1] for line in lines if line.startswith(name + "=")]


def prefork(stage, command):
    """A pre-fork server: its workers answer, and one that ends is replaced from frozen memory."""
    words = stage.here(command).split()
    if not os.path.exists("/usr/bin/gunicorn"):
        return skip("gunicorn: install the Debian package gunicorn")
    folder = stage.room("prefork")
    with open(os.path.join(folder, "app.py"), "w") as file:
        file.write(
            "big = [str(number) * 4 for number in range(600000)]\n"
            "def app(environ, start):\n    start('200 OK', [])\n    return [big[12345].encode()]\n"
        )
    path = os.path.join(folder, "socket")
    process = subprocess.Popen(
        words + ["--bind", f"unix:{path}"],
        cwd=folder,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "ODFORK_FREEZE": "eager"},
    )
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    try:
        workers = until(
            lambda: len(open(children).read().split()) == 4 and open(children).read().split()
        )
        os.kill(int(workers[0]), signal.SIGTERM)
        until(lambda: sorted(open(children).read().split()) != sorted(workers) and
              len(open(children).read().split()) == 4)
        asked = ["curl", "-s", "--unix-socket", path, "http://localhost/"]
        answers = [subprocess.run(asked, capture_output=True, text=True).stdout for _ in range(20)]
        check("gunicorn's workers answer", answers == ["12345" * 4] * 20, str(answers))
        said = stage.stats(process.pid)
        check("gunicorn's parent: memory is in a backing file", FROZEN in said, said)
    finally:
        process.terminate()
        process.wait(60)


def main():
    release = os.path.abspath(sys.argv[1])
    if os.geteuid() != 0 or not os.path.exists(redis_bgsave.SERVER):
        skip("needs root, and the Debian package redis-server")
        return
    with open(PAGE) as file:
        found = blocks(file.read())
    stage = Stage(release)
    try:
        lines = [
            line[2:] for language, block, _ in found if language == "console" for line in block
        ]
        asked = [
            line
            for line in lines
            if line.startswith(("odfork", "redis-cli"))
            and "--plain" not in line
            and not line.startswith("odfork run")
        ]
        for line in [line for line in lines if line.startswith("odfork run")]:
            live(stage, "root", line)
            live(stage, "user", line)
        check("the page has commands", len(asked) >= 5 and any("--plain" in line for line in lines))
        for number, (language, block, place) in enumerate(found):
            path = block[0][2:]
            if language == "ini" and "/systemd/system/" in path:
                verify(stage, path, block)
                if "redis" in path:
                    words = settings(block, "Environment")[0].split()
                    named = dict(word.split("=", 1) for word in words)
                    named = {name: stage.here(value) for name, value in named.items()}
                    server_in(stage, f"drop-in-{number}", place, named, asked)
                else:
                    prefork(stage, settings(block, "ExecStart")[0])
            for line in [line[2:] for line in block if line.startswith("$ docker")]:
                environment, device, command = container(line)
                check(
                    "the line is of its place",
                    command == ["redis-server"] and device == place.endswith("device"),
                )
                environment = {name: stage.here(value) for name, value in environment.items()}
                server_in(stage, f"container-{number}", place, environment, [])
    finally:
        shutil.rmtree(stage.folder, ignore_errors=True)


main()
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed > 0)
