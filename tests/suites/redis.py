"""Redis' own suite in Tcl, against the packaged server. Each of its servers starts through a script
that puts the launcher before it."""

import os
import re
import shutil
import socket

import source

NAME = "redis"
PROGRAMS = ["redis-server", "redis-cli", "redis-benchmark", "redis-check-rdb", "redis-check-aof",
            "redis-sentinel"]
UNITS = ["unit/other", "unit/dump", "unit/expire", "unit/info", "unit/lazyfree", "unit/limits",
         "unit/maxmemory", "unit/memefficiency", "unit/multi", "unit/oom-score-adj",
         "unit/shutdown", "unit/scripting", "unit/type/string", "unit/type/hash", "unit/type/list",
         "unit/type/set", "unit/type/zset", "unit/type/stream", "integration/rdb",
         "integration/aof", "integration/aof-multi-part", "integration/aof-race",
         "integration/corrupt-dump", "integration/dismiss-mem", "integration/logging",
         "integration/replication",
         "integration/replication-psync", "integration/block-repl", "integration/shutdown"]
SECONDS = 1500


def missing():
    for path, package in (("/usr/bin/redis-server", "redis-server"), ("/usr/bin/tclsh", "tcl")):
        if not os.path.exists(path):
            return f"install the Debian package {package}"
    return source.fetch("redis")[1]


def run(unit, stage):
    folder, _ = source.fetch("redis")
    tests = os.path.join(stage.folder, "redis")
    os.makedirs(f"{tests}/src")
    for name in ("tests", "runtest", "redis.conf", "sentinel.conf", "utils"):
        kind = shutil.copytree if os.path.isdir(f"{folder}/{name}") else shutil.copy
        kind(f"{folder}/{name}", f"{tests}/{name}")
    for name in PROGRAMS:
        launcher = stage.launcher if name == "redis-server" else []
        with open(f"{tests}/src/{name}", "w") as file:
            file.write(f'#!/bin/sh\nexec {" ".join(launcher)} /usr/bin/{name} "$@"\n')
        os.chmod(f"{tests}/src/{name}", 0o755)
    command = ["./runtest", "--single", unit, "--clients", "1", "--baseport", str(free_ports()),
               "--portcount", "200", "--skipunit", "unit/moduleapi"]
    status = stage.run(command, SECONDS, cwd=tests)
    results = {"exit status": str(status)}
    text = re.sub(r"\x1b\[[0-9;]*m", "", stage.read())
    for outcome, name in re.findall(r"\[(ok|err|skip|ignore|exception)\]: (.*)", text):
        # Durations, and where it failed, are no part of the name.
        name = re.sub(r" \(\d+ ms\)$| in tests/\S+$", "", name)
        name = re.sub(r"\d+(\.\d+)?", "N", name)
        results[name] = outcome if results.get(name, "ok") == "ok" else results[name]
    return results


def free_ports():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return min(one.getsockname()[1], 55000)
