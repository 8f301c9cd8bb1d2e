"""Counts of `odfork page simulate` against maintained cache-simulation libraries.

    oracle.py ODFORK TRACE...

libcachesim: FIFO, LRU, Clock (bit set and clear at entry), Belady. cachetools: FIFO and LRU again.
Memories from a tenth of the distinct pages to all. Closing line: N passed, N failed. Exit status 0
when nothing failed.
"""

import gzip
import json
import subprocess
import sys

import cachetools
import libcachesim

SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.95, 1.0)


def read(path):
    """Page numbers of a trace, as the format says; processes are not used here."""
    if path.endswith(".zst"):
        lines = (
            subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True)
            .stdout.decode()
            .splitlines()
        )
    else:
        opener = gzip.open if path.endswith(".gz") else open
        with opener(path, "rt") as file:
            lines = file.read().splitlines()
    return [int(line.split()[0], 0) for line in lines if line and not line.startswith("#")]


def next_uses(pages):
    """For every reference the position of the next one to its page."""
    never, seen, after = 2**62, {}, []
    for at in range(len(pages) - 1, -1, -1):
        after.append(seen.get(pages[at], never))
        seen[pages[at]] = at
    return after[::-1]


def misses(cache, pages, after):
    request = libcachesim.Request()
    request.obj_size = 1
    missed = 0
    for page, then in zip(pages, after):
        request.obj_id = page
        request.next_access_vtime = then
        missed += not cache.get(request)
    return missed


def misses_of_tool(cache, pages):
    missed = 0
    for page in pages:
        if page in cache:
            cache[page]
        else:
            cache[page] = True
            missed += 1
    return missed


def oracles(frames, pages, after):
    """(policy, library, faults)"""
    made = (
        ("fifo", libcachesim.FIFO(frames)),
        ("lru", libcachesim.LRU(frames)),
        ("clock", libcachesim.Clock(frames, init_freq=1)),
        ("clock:insert=0", libcachesim.Clock(frames, init_freq=0)),
        ("min", libcachesim.Belady(frames)),
    )
    for policy, cache in made:
        yield policy, "libcachesim", misses(cache, pages, after)
    yield "fifo", "cachetools", misses_of_tool(cachetools.FIFOCache(frames), pages)
    yield "lru", "cachetools", misses_of_tool(cachetools.LRUCache(frames), pages)


def check(odfork, path):
    pages = read(path)
    after = next_uses(pages)
    sizes = sorted({max(1, int(len(set(pages)) * share)) for share in SHARES})
    words = [odfork, "page", "simulate", "--json", "--policy", "fifo,lru,clock,clock:insert=0,min"]
    words += ["--frames", ",".join(map(str, sizes)), path]
    output = subprocess.run(words, check=True, capture_output=True).stdout
    ours = {}
    for line in map(json.loads, output.splitlines()):
        assert line["references"] == len(pages) and line["trace"] == path
        ours[line["policy"], line["frames"]] = line["faults"]
    passed = failed = 0
    for frames in sizes:
        for policy, library, expected in oracles(frames, pages, after):
            if ours[policy, frames] == expected:
                passed += 1
            else:
                failed += 1
                print(
                    f"oracle: FAILED: {path}: {policy}, {frames} frames: "
                    f"{ours[policy, frames]}, {library} {expected}"
                )
    print(
        f"oracle: {path}: {len(pages)} references, {len(set(pages))} pages: "
        f"{passed} of {passed + failed} counts equal"
    )
    return passed, failed


def main():
    odfork, *traces = sys.argv[1:]
    results = [check(odfork, path) for path in traces]
    passed, failed = (sum(column) for column in zip(*results))
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
