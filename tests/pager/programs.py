#!/usr/bin/env python3
"""Four programs at half of their memory: the pager in both modes beside the kernel's swap file.

    programs.py ODFORK [dict] [sort] [sqlite] [xz]        as root; no name: all
    ROUNDS=5 STORE=/var/tmp programs.py ODFORK ...

Each program first runs alone: half of its largest resident size is what it may have. Then every
round runs all engines in a random order. Wrong output is a failure. At the end, medians.
Owns swap file, control groups and files while it runs. `odfork bench paging` has the rest.
"""

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROUNDS = int(os.environ.get("ROUNDS", "5"))
STORE = os.environ.get("STORE", "/var/tmp")
ENGINES = ["stock", "swapfile", "any", "pager"]
MB = 1 << 20
SWAP = 2048 * MB
SECONDS = 300

DICT = """
table = {f"key{number}": number * number for number in range(1_600_000)}
print(len(table), [sum(len(key) + value % 7 for key, value in table.items()) for _ in range(4)])
"""

SQLITE = """
import random, sqlite3
random.seed(1)
base = sqlite3.connect(":memory:")
base.execute("pragma temp_store = memory")
base.execute("create table item (key integer primary key, kind integer, name text, body blob)")
rows = ((key, key * 7919 % 1000, f"name {key * 7919 % 400_000}", random.randbytes(440))
        for key in range(400_000))
base.executemany("insert into item values (?, ?, ?, ?)", rows)
base.execute("create index by_name on item (name)")
ask = lambda text, *values: base.execute(text, values).fetchall()
print(ask("select count(*), sum(length(body)), max(body) from item"))
print(ask("select kind, count(*), min(body) from item group by kind order by 2, 1 limit 5"))
names = [f"name {int(400_000 * random.random() ** 3)}" for _ in range(60_000)]
print(sum(ask("select key + length(body) from item where name = ?", name)[0][0] for name in names))
base.execute("update item set kind = kind + 1 where key % 3 = 0")
print(ask("select sum(kind), max(body) from item"))
"""


def write_lines(path):
    """Text of 100 MB for sort: lines of 2 to 6 words."""
    letters, rng = "abcdefghijklmnopqrstuvwxyz", random.Random(1)
    words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(20_000)]
    with open(path, "w", encoding="ascii") as file:
        for _ in range(3_750_000):
            file.write(" ".join(rng.choices(words, k=rng.randint(2, 6))) + "\n")


def write_libraries(path):
    """Shared libraries of this machine for xz: 4 MB."""
    found = subprocess.run(["find", "/usr/lib", "-type", "f", "-name", "*.so.*", "-size", "+100k"],
                           check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    left = 4 * MB
    with open(path, "wb") as out:
        for name in sorted(found):
            with open(name, "rb") as file:
                left -= out.write(file.read(left))
    if left:
        sys.exit("/usr/lib has too few shared libraries for xz")


PROGRAMS = {
    "dict": (lambda path: [sys.executable, "-c", DICT], None),
    "sort": (lambda path: ["sort", "-S", "1G", "--parallel=1", path], write_lines),
    "sqlite": (lambda path: [sys.executable, "-c", SQLITE], None),
    "xz": (lambda path: ["xz", "-9", "-T1", "-c", path], write_libraries),
}


def put(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(text))


def number_of(path, name=""):
    """The number of a file, or of its line `name`."""
    with open(path, encoding="ascii") as file:
        lines = [line.split() for line in file]
    return next((int(words[-1]) for words in lines if words[0] == name or not name), 0)


def counts(report, ahead):
    """What there is of the pager's counts to be told."""
    return {name: report[name] for name in ("faults", "page_ins", ahead, "page_outs")}


class Group:
    """A control group for memory, version 1 or 2; who is left in it at its end is killed."""

    def __init__(self, limit):
        with open("/proc/self/cgroup", encoding="ascii") as file:
            own = {line.split(":")[1]: line.split(":")[2].strip() for line in file}
        self.one = "memory" in own
        if self.one:
            parent = "/sys/fs/cgroup/memory" + own["memory"]
        else:
            parent = "/sys/fs/cgroup"
            put(parent + "/cgroup.subtree_control", "+memory")
        self.path = f"{parent}/odfork-programs-{os.getpid()}"
        self.limit, self.helped, self.ended = limit, 0, False
        self.helper = threading.Thread(target=self.help)
        os.mkdir(self.path)
        if limit:
            put(self.path + ("/memory.limit_in_bytes" if self.one else "/memory.max"), limit)
            if self.one:
                put(self.path + "/memory.oom_control", 1)
                self.helper.start()

    def enter(self, command):
        """The command that runs `command` in it."""
        enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        return ["sh", "-c", enter, self.path, *command]

    def help(self):
        """4 MB more for a moment, whenever the kernel would kill: it frees too little in time."""
        limit = self.path + "/memory.limit_in_bytes"
        while not self.ended:
            time.sleep(0.001)
            try:
                if number_of(self.path + "/memory.oom_control", "under_oom"):
                    self.helped += 1
                    put(limit, number_of(limit) + 4 * MB)
                elif number_of(limit) > self.limit:
                    put(limit, self.limit)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise

    def peak(self):
        return number_of(self.path + ("/memory.max_usage_in_bytes" if self.one else "/memory.peak"))

    def end(self):
        self.ended = True
        if self.helper.ident:
            self.helper.join()
        for _ in range(500):
            with open(self.path + "/cgroup.procs", encoding="ascii") as file:
                for pid in file.read().split():
                    os.kill(int(pid), signal.SIGKILL)
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.01)
        raise RuntimeError(f"cannot remove {self.path}")


def timed(command, environment=None):
    """Seconds, digest of the output, largest resident size."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE,
                               env={**os.environ, "LC_ALL": "C", **(environment or {})})
    signal.alarm(SECONDS)
    digest = hashlib.file_digest(process.stdout, "sha256").hexdigest()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begin
    signal.alarm(0)
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return seconds, digest, usage.ru_maxrss * 1024


class Bench:
    def __init__(self, odfork, folder):
        self.odfork, self.folder = os.path.abspath(odfork), folder
        self.swap = os.path.join(folder, "swap")

    def swap_file(self):
        with open(self.swap, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            for _ in range(SWAP // MB):
                file.write(bytes(MB))
        subprocess.run(["mkswap", self.swap], check=True, stdout=subprocess.DEVNULL)

    def command(self, engine, command, limit):
        if engine in ("stock", "swapfile"):
            return command
        run = [self.odfork, "page", "run", "--limit", str(limit), "--store", self.folder]
        own = ["--memory", "any"] if engine == "any" else ["--socket", self.socket()]
        return [*run, *own, "--", *command]

    def socket(self):
        return os.path.join(self.folder, "page.sock")

    def run(self, engine, command, limit):
        """Seconds, digest, peak of the group, pages in and out."""
        report = os.path.join(self.folder, "report")
        put(report, "")
        before = [number_of("/proc/vmstat", name) for name in ("pswpin", "pswpout")]
        if engine == "swapfile":
            subprocess.run(["swapon", "-p", "32767", self.swap], check=True)
        group = Group(limit if engine == "swapfile" else 0)
        try:
            seconds, digest, _ = timed(group.enter(self.command(engine, command, limit)),
                                       {"ODFORK_PAGE_REPORT": report})
            peak = group.peak()
            after = [number_of("/proc/vmstat", name) for name in ("pswpin", "pswpout")]
            pages = {"in": after[0] - before[0], "out": after[1] - before[1],
                     "helped": group.helped}
            if engine == "pager":
                status = subprocess.run([self.odfork, "page", "status", "--json", "--socket",
                                         self.socket()], check=True, stdout=subprocess.PIPE).stdout
                pages = counts(json.loads(status)["totals"], "prefetched")
            if engine == "any":
                with open(report, encoding="ascii") as file:
                    text = file.read()
                pages = counts(json.loads(text), "ahead") if text else {}
        finally:
            group.end()
            if engine == "swapfile":
                subprocess.run(["swapoff", self.swap], check=True)
        return seconds, digest, peak, pages

    def program(self, name):
        make, write = PROGRAMS[name]
        path = os.path.join(self.folder, name)
        if write:
            write(path)
        command = make(path)
        timed(command)
        _, expected, peak = timed(command)
        limit = peak // 2 // MB * MB
        print(f"{name}: {peak // MB} MB, may have {limit // MB} MB", flush=True)
        rounds = []
        for _ in range(ROUNDS):
            rounds.append({})
            for engine in random.sample(ENGINES, len(ENGINES)):
                seconds, digest, peak, pages = self.run(engine, command, limit)
                if digest != expected:
                    sys.exit(f"{name}: {engine}: wrong output")
                print(f"  {engine:<9} {seconds:6.2f} s  peak {peak / MB:4.0f} MB  {pages}",
                      flush=True)
                rounds[-1][engine] = seconds
        for engine in ENGINES:
            times = [one[engine] for one in rounds]
            ratios = [one[engine] / one["swapfile"] for one in rounds]
            print(f"{name:<7} {engine:<9} {statistics.median(times):6.2f} "
                  f"[{min(times):.2f}, {max(times):.2f}] s, of swapfile "
                  f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]")


def stop(number, _frame):
    raise SystemExit(f"ended by signal {number}")


def main():
    if len(sys.argv) < 2 or set(sys.argv[2:]) - set(PROGRAMS):
        sys.exit(__doc__)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, stop)
    folder = tempfile.mkdtemp(prefix="odfork-programs-", dir=STORE)
    try:
        bench = Bench(sys.argv[1], folder)
        bench.swap_file()
        for name in sys.argv[2:] or PROGRAMS:
            bench.program(name)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
