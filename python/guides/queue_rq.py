"""An RQ worker that forks a child for each job, from a warm and frozen process.

    python -m odfork queue_rq.py worker SOCKET      SOCKET: of redis-server

Run without arguments it starts redis-server and this worker, and puts jobs into the queue.
"""

import gc
import os
import sys

import demo

import odfork

MODEL = []


def load():
    MODEL.extend(number * number for number in range(200_000))


def job(number):
    """What the queue asks for. The model was loaded before the fork."""
    return MODEL[number], os.getppid(), odfork.stats().frozen_bytes


def work(path):
    import queue_rq  # the module that jobs name, not this script
    import redis
    import rq

    queue_rq.load()
    gc.collect()
    gc.freeze()
    odfork.freeze()
    rq.Worker(["default"], connection=redis.Redis(unix_socket_path=path)).work(burst=True)


def main():
    import redis
    import rq

    with demo.redis() as path, redis.Redis(unix_socket_path=path) as connection:
        queue = rq.Queue(connection=connection)
        jobs = [queue.enqueue("queue_rq.job", number) for number in range(5)]
        with demo.running(
            [sys.executable, "-m", "odfork", "queue_rq.py", "worker", path]
        ) as worker:
            worker.wait(demo.SECONDS)
        results = [one.return_value(refresh=True) for one in jobs]
    assert [square for square, _, _ in results] == [0, 1, 4, 9, 16], results
    assert len({parent for _, parent, _ in results}) == 1, results
    print(f"{len(results)} jobs, each in a fork of one worker, {results[0][2] >> 20} MB frozen")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(sys.argv[2])
    else:
        main()
