"""Celery's prefork pool: children are cheap forks of a worker that has loaded everything.

    BROKER=redis+socket:///path python -m odfork -m celery -A queue_celery worker

Run as a script it starts redis-server and this command, and sends tasks.
"""

import gc
import os
import sys

import celery
import demo
from celery.signals import worker_before_create_process

import odfork

MODEL = [number * number for number in range(200_000)]

app = celery.Celery("queue_celery", broker=os.environ.get("BROKER"))
app.conf.result_backend = os.environ.get("BROKER")
app.conf.worker_max_tasks_per_child = 1  # a fresh process for each task costs little now
app.conf.broker_connection_retry_on_startup = True


@worker_before_create_process.connect
def freeze(**_):
    """Before each child: takes in what is new since the last one."""
    if not odfork.stats().frozen_bytes:
        gc.collect()
        gc.freeze()
    odfork.refreeze()


@app.task
def job(number):
    return MODEL[number], os.getpid(), odfork.stats().frozen_bytes


def main():
    with demo.redis() as path:
        address = f"redis+socket://{path}"
        app.conf.broker_url = app.conf.result_backend = address
        command = [sys.executable, "-m", "odfork", "-m", "celery", "-A", "queue_celery", "worker"]
        command += ["--concurrency=2", "--loglevel=WARNING", "--without-mingle"]
        with demo.running(command, env={"BROKER": address}):
            sent = [job.delay(number) for number in range(6)]
            results = [one.get(timeout=demo.SECONDS) for one in sent]
    assert [square for square, _, _ in results] == [0, 1, 4, 9, 16, 25], results
    assert len({process for _, process, _ in results}) == 6, results
    print(f"6 tasks in 6 processes, {results[0][2] >> 20} MB frozen")


if __name__ == "__main__":
    main()
