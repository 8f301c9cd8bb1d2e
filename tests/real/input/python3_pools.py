# multiprocessing, concurrent.futures and subprocess over a large inherited object; threads in the
# parent that count while it forks. Every result is sorted or ordered, so the output is always the
# same.
import concurrent.futures
import hashlib
import multiprocessing
import os
import subprocess
import threading
import time

ROWS = 400_000
shared = []


def slice_digest(bounds):
    low, high = bounds
    h = hashlib.blake2b(digest_size=8)
    for number, text in shared[low:high]:
        h.update(b"%d%s" % (number, text))
    return low, h.hexdigest()


def mark_own(bounds):
    low, high = bounds
    for i in range(low, high):
        shared[i] = (-i, b"mine")
    return sum(number for number, _ in shared[low:high])


def pieces(count):
    step = ROWS // count
    return [(i * step, (i + 1) * step) for i in range(count)]


def pools():
    fork = multiprocessing.get_context("fork")
    with fork.Pool(3, maxtasksperchild=4) as pool:
        results = pool.map(slice_digest, pieces(16), chunksize=1)
        print("pool", hashlib.sha256(repr(results).encode()).hexdigest()[:24])
        print("own", sorted(pool.imap_unordered(mark_own, pieces(8)))[:3])
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=fork) as executor:
        futures = [executor.submit(slice_digest, piece) for piece in pieces(8)]
        results = [future.result() for future in futures]
        print("futures", hashlib.sha256(repr(results).encode()).hexdigest()[:24])
    queue = fork.Queue()
    total = fork.Value("q", 0)
    array = fork.Array("i", 1000)

    def worker(number):
        with total.get_lock():
            total.value += number
        for i in range(number, 1000, 4):
            array[i] = i * number
        queue.put((number, slice_digest((number * 1000, number * 1000 + 500))[1]))

    workers = [fork.Process(target=worker, args=(number,)) for number in range(4)]
    for process in workers:
        process.start()
    got = sorted(queue.get(timeout=30) for _ in workers)
    for process in workers:
        process.join()
    print("processes", got, total.value, sum(array), [process.exitcode for process in workers])


def subprocesses():
    data = b"".join(text for _, text in shared[:100_000])
    sorter = subprocess.run(["/usr/bin/sha256sum"], input=data, capture_output=True)
    print("subprocess", sorter.stdout[:24].decode(), sorter.returncode)
    first = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    second = subprocess.Popen(["/usr/bin/wc", "-c"], stdin=first.stdout, stdout=subprocess.PIPE)
    first.stdout.close()
    first.stdin.write(data)
    first.stdin.close()
    print("pipeline", second.communicate()[0].strip().decode(), first.wait(), second.wait())
    # preexec_fn makes subprocess use fork+exec instead of vfork
    made = subprocess.run(
        ["/bin/sh", "-c", "echo $((6*7)); exit 5"], capture_output=True, preexec_fn=os.setpgrp
    )
    print("preexec", made.stdout.decode().strip(), made.returncode)
    print("killed", subprocess.run(["/bin/sh", "-c", "kill -9 $$"]).returncode)
    print("shell", subprocess.getoutput("printf '%s-' a b c"), os.system("exit 7") >> 8)
    with os.popen("echo from popen") as pipe:
        print(pipe.read().strip())


def threads():
    """Four threads count while the main thread forks; no count may be lost and no child may see
    x < y.
    """
    tallies = [[0, 0] for _ in range(4)]
    journal = [bytearray(4096 * 16) for _ in range(4)]
    counted = [0] * 4
    forked_all = threading.Event()

    def count(number):
        mine, log = tallies[number], journal[number]
        i = 0
        while not forked_all.is_set():
            i += 1
            mine[0] = i
            log[i % len(log)] = i & 255
            mine[1] = i
        counted[number] = i

    crew = [threading.Thread(target=count, args=(number,)) for number in range(4)]
    for thread in crew:
        thread.start()
    bad = 0
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            ordered = all(x >= y for x, y in tallies)
            whole = slice_digest((1000, 3000))[1]
            os._exit(0 if ordered and whole == expected else 1)
        bad += os.waitpid(pid, 0)[1] != 0
        time.sleep(0.02)  # lets the threads have the interpreter lock
    forked_all.set()
    for thread in crew:
        thread.join()
    exact = [tally == [i, i] and i > 0 for tally, i in zip(tallies, counted)]
    logged = [log[i % len(log)] == i & 255 for log, i in zip(journal, counted)]
    print("threads exact", exact, "logged", logged, "bad children", bad)


shared = [(i * 31, b"row %d of the table" % i) for i in range(ROWS)]
expected = slice_digest((1000, 3000))[1]
pools()
subprocesses()
threads()
print("unchanged", slice_digest((0, ROWS))[1])
