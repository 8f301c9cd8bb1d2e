# A parent with a large dict and a large list forks children that read all of it, change it, and
# fork again; between forks the parent changes it too. Prints what the children saw.
import gc
import hashlib
import os
import random
import sys

ENTRIES = 250_000


def build():
    table = {"key-%07d" % i: (i, "value %d" % (i * 7919), [i % 13]) for i in range(ENTRIES)}
    items = [(b"%08d" % i) * 12 for i in range(ENTRIES)]
    return table, items


def digest(table, items):
    h = hashlib.blake2b(digest_size=12)
    for key, (number, text, tail) in table.items():
        h.update(("%s%d%s%d" % (key, number, text, tail[0])).encode())
    for item in items:
        h.update(item)
    return h.hexdigest()


def in_child(work):
    """Runs work() in a forked child; returns what it printed through a pipe and its wait status."""
    sys.stdout.flush()
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 3
        try:
            os.close(r)
            os.write(w, work().encode())
            status = 0
        finally:
            os._exit(status)
    os.close(w)
    with os.fdopen(r, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return said, status


def change(table, items, seed):
    rng = random.Random(seed)
    for _ in range(2000):
        i = rng.randrange(ENTRIES)
        table["key-%07d" % i] = (rng.randrange(1 << 30), "changed by %d" % seed, [seed])
        items[i] = b"%d:%d" % (seed, i)


def nested(table, items, depth):
    change(table, items, 100 + depth)
    if depth == 0:
        return digest(table, items)
    said, status = in_child(lambda: nested(table, items, depth - 1))
    return "%s(%d)<%s" % (digest(table, items), status, said)


def main():
    table, items = build()
    start = digest(table, items)
    print("start", start)
    for turn in range(4):
        said, status = in_child(lambda: digest(table, items))
        here = digest(table, items)
        print("turn", turn, said, status, "same" if said == here else "DIFFERENT")
        change(table, items, turn)
    gc.freeze()
    print("chain", *in_child(lambda: nested(table, items, 2)))
    unchanged = digest(table, items)
    # many children alive at once, each of another generation of the parent, all checked at the end
    waiting = []
    for turn in range(6):
        r, w = os.pipe()
        go_r, go_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go_w)
            os.read(go_r, 1)
            os.write(w, hashlib.blake2b(b"".join(items), digest_size=8).hexdigest().encode())
            os._exit(0)
        os.close(w)
        os.close(go_r)
        waiting.append(
            (turn, pid, r, go_w, hashlib.blake2b(b"".join(items), digest_size=8).hexdigest())
        )
        change(table, items, 50 + turn)
    for turn, pid, r, go_w, expected in reversed(waiting):
        os.close(go_w)
        said = os.read(r, 100).decode()
        os.close(r)
        print(
            "alive", turn, said, os.waitpid(pid, 0)[1], "same" if said == expected else "DIFFERENT"
        )
    print(
        "parent", digest(table, items), "moved on" if digest(table, items) != unchanged else "STUCK"
    )
    del table, items
    gc.unfreeze()
    gc.collect()
    print("freed", *in_child(lambda: hashlib.blake2b(b"x" * 10_000_000, digest_size=8).hexdigest()))
    try:
        os.waitpid(-1, 0)
        print("EXTRA CHILD")
    except ChildProcessError:
        print("no child left")


main()
