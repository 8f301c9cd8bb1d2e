# A 200 MB integer array: rounds of 4 children, each sums and then overwrites its own slice, while
# the parent changes the array between rounds, resizes and frees other arrays, and forks again.
import hashlib
import os

import numpy as np

CELLS = 25_000_000


def in_children(work, count):
    pipes = []
    for number in range(count):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 3
            try:
                os.write(w, repr(work(number)).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(w)
        pipes.append((pid, r))
    results = []
    for pid, r in pipes:
        said = b""
        while part := os.read(r, 4096):
            said += part
        os.close(r)
        results.append((said.decode(), os.waitpid(pid, 0)[1]))
    return results


def part(number):
    step = CELLS // 4
    return slice(number * step, (number + 1) * step)


def sum_and_spoil(array):
    def work(number):
        view = array[part(number)]
        before = int(view.sum())
        view[:] = number
        return before, int(view.sum()), int(array[part((number + 1) % 4)].sum())

    return work


array = np.arange(CELLS, dtype=np.int64)
array *= 2654435761
array %= 1_000_003
for turn in range(4):
    print("round", turn, in_children(sum_and_spoil(array), 4))
    array[turn :: 512 * (turn + 1)] += 17  # one write per page or fewer
    scratch = np.ones(3_000_000 + turn)
    scratch = np.concatenate([scratch, scratch])
    print("scratch", in_children(lambda n: float(scratch.sum()), 1))
    del scratch
print("sorted", in_children(lambda n: int(np.sort(array[: 1 << 20])[1 << (10 + n)]), 2))
# realloc of a large mapping: the new part reads zeros
array.resize(CELLS + 1_000_000, refcheck=False)
print(
    "grown",
    int(array.sum()),
    int(array[CELLS:].sum()),
    in_children(lambda n: int(array[CELLS:].sum()), 1),
)
array.resize(CELLS // 2, refcheck=False)
print("shrunk", int(array.sum()), in_children(lambda n: int(array.sum()), 1))
print(
    "product",
    in_children(lambda n: round(float((np.eye(200) * 3 @ np.ones((200, 200))).sum()), 3), 1),
)
print("digest", hashlib.sha256(array).hexdigest()[:24])
