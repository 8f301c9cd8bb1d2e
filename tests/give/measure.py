#!/usr/bin/env python3
"""What giving memory back costs: stock, and odfork with both backings, interleaved.

    measure.py FOLDER [calls] [allocators] [redis]    FOLDER: the built programs; no name: all
    PAIRS=7 MB=128 VALUES=64,700,4096,16384,65536 REDIS_MB=400 measure.py ...

Every figure is a median of PAIRS runs, and after it the median of the ratios to the stock run of
the same round. Owns the order of runs and the tables; the programs are calls.c, phases.c and
redis_bgsave.py beside it.
"""

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import redis_bgsave

HERE = os.path.dirname(os.path.abspath(__file__))
PAIRS = int(os.environ.get("PAIRS", "7"))
MB = os.environ.get("MB", "128")
ALLOCATORS = {"glibc": "", "glibc, malloc_trim": "", "jemalloc, decay 0": "libjemalloc.so.2",
              "tcmalloc": "libtcmalloc_minimal.so.4", "mimalloc": "libmimalloc.so.2"}


def environments(release):
    library = os.path.join(os.path.abspath(release), "libodfork.so")
    eager = {"LD_PRELOAD": library, "ODFORK_FREEZE": "eager"}
    return {"stock": {}, "huge": {**eager, "ODFORK_IMAGE": "huge"},
            "small": {**eager, "ODFORK_IMAGE": "small"}}


def compiled(folder, name):
    program = os.path.join(folder, name)
    subprocess.run(["cc", "-O2", "-pthread", "-o", program, os.path.join(HERE, name + ".c")],
                   check=True)
    return program


def figures(command, environment, preload=""):
    """The numbers that a program prints; it fails where a byte is wrong."""
    libraries = " ".join(filter(None, [environment.get("LD_PRELOAD"), preload]))
    settings = {**os.environ, **environment, "LD_PRELOAD": libraries,
                "MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}
    text = subprocess.run(command, env=settings, check=True, stdout=subprocess.PIPE, timeout=600)
    return [float(word) for word in text.stdout.split()]


def interleaved(run, names):
    """`run(name)` for each name in every round, in a random order."""
    rounds = []
    for _ in range(PAIRS):
        order = random.sample(names, len(names))
        rounds.append({name: run(name) for name in order})
    return rounds


def row(label, rounds, columns, scale):
    """A line of a table: for each column the median of every name, and its ratio to stock."""
    cells = [label]
    for column, unit in columns:
        for name in ("stock", "huge", "small"):
            values = [r[name][column] for r in rounds]
            cell = f"{statistics.median(values) / scale[unit]:.{1 if unit != 's' else 2}f}"
            if name != "stock":
                ratios = [r[name][column] / max(r["stock"][column], 1e-9) for r in rounds]
                cell += f" ({statistics.median(ratios):.2f})"
            cells.append(cell)
    print("| " + " | ".join(cells) + " |", flush=True)


def table(title, columns):
    print(f"\n{title} Load {os.getloadavg()[0]:.1f}.\n")
    names = [f"{column} {name}" for column in columns for name in ("stock", "huge", "small")]
    print("| | " + " | ".join(names) + " |\n" + "| --- " * (len(names) + 1) + "|", flush=True)


def calls(release, folder):
    program, kinds = compiled(folder, "calls"), environments(release)
    table("One MADV_DONTNEED, every other part of a heap, at random.", ["us", "mappings"])
    for who in ("parent", "child"):
        for beside in ("alone", "thread"):
            for part in ("4", "16", "64", "256"):
                words = [program, "64" if int(part) < 64 else "256", part, who, beside, "random"]
                rounds = interleaved(lambda name: figures(words, kinds[name]), list(kinds))
                row(f"{who} {beside} {part} KB", rounds, [(0, "us"), (2, "n")], {"us": 1e3, "n": 1})


def allocators(release, folder):
    program, kinds = compiled(folder, "phases"), environments(release)
    for every, title in (("0", "after one freeze"), ("8", "with a fork before every 8th phase")):
        table(f"Processor time of 32 phases, {title}, {MB} MB.", ["s", "resident MB", "mappings"])
        for label, library in ALLOCATORS.items():
            words = [program, MB, "32", every, "1"] + ["trim"] * ("trim" in label)
            rounds = interleaved(lambda name: figures(words, kinds[name], library), list(kinds))
            row(label, rounds, [(0, "s"), (1, "mb"), (2, "n")], {"s": 1e6, "mb": 1024, "n": 1})


def redis(release, folder):
    kinds, megabytes = environments(release), int(os.environ.get("REDIS_MB", "400"))
    table(f"BGSAVE of redis-server, {megabytes} MB: seconds, processor time of children, copied.",
          ["s", "CPU s", "MB copied"])
    for size in map(int, os.environ.get("VALUES", "64,700,4096,16384,65536").split(",")):
        places = {name: os.path.join(folder, name) for name in kinds}
        for place in places.values():
            shutil.rmtree(place, ignore_errors=True)
            os.makedirs(place)
        servers = {n: redis_bgsave.Server(places[n], kinds[n]) for n in kinds}
        try:
            for server in servers.values():
                redis_bgsave.fill(server, megabytes, size)
                server.save()  # the first fork freezes
            rounds = interleaved(lambda name: servers[name].save(), list(kinds))
            digests = {name: server.ask("DEBUG", "DIGEST") for name, server in servers.items()}
        finally:
            for server in servers.values():
                server.stop()
        for name, digest in digests.items():
            again = redis_bgsave.Server(places[name], {})
            if again.ask("DEBUG", "DIGEST") != digest:
                sys.exit(f"redis, {size} bytes, {name}: the dump is another")
            again.stop()
        row(f"{size} B", rounds, [(0, "s"), (1, "s"), (2, "mb")], {"s": 1, "mb": 1 << 20})


def main():
    release, wanted = sys.argv[1], sys.argv[2:] or ["calls", "allocators", "redis"]
    print(time.strftime("%Y-%m-%d"), os.uname().release, f"{PAIRS} rounds")
    with tempfile.TemporaryDirectory(prefix="odfork-give.") as folder:
        for name in wanted:
            {"calls": calls, "allocators": allocators, "redis": redis}[name](release, folder)


if __name__ == "__main__":
    main()
