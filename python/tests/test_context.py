"""multiprocessing and concurrent.futures with a zygote's context."""

import multiprocessing
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker, shared_memory

import pytest

import odfork


def square(x):
    return x * x


def parent(_):
    return os.getppid()


def answer(queue, event):
    queue.put(os.getpid())
    event.wait()


def add(lock, value):
    for _ in range(100):
        with lock:
            value.value += 1


def fill(name):
    memory = shared_memory.SharedMemory(name)
    memory.buf[0] = 42
    memory.close()


def send(connection):
    connection.send(["over", "a", "pipe"])


@pytest.fixture(scope="module")
def context():
    resource_tracker.ensure_running()  # its descriptor stays, as with the other start methods
    made = odfork.get_context(imports=["json"])
    made.Value("i", 0)  # so does the arena that shared objects are cut from
    with made.zygote:
        yield made


def test_executor(context):
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(square, range(10))) == [x * x for x in range(10)]
        assert set(pool.map(parent, range(4))) == {context.zygote.pid}


def test_a_killed_worker_breaks_the_executor(context):
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        with pytest.raises(BrokenProcessPool):
            pool.submit(os.kill, *(pool.submit(os.getpid).result(), signal.SIGKILL)).result()


def test_pool(context):
    with context.Pool(2) as pool:
        assert pool.map(square, range(20)) == [x * x for x in range(20)]


def test_process(context):
    queue, event = context.Queue(), context.Event()
    process = context.Process(target=answer, args=(queue, event))
    process.start()
    assert queue.get() == process.pid and process.is_alive()
    event.set()
    process.join()
    assert process.exitcode == 0
    queue.close()
    queue.join_thread()
    sleeper = context.Process(target=time.sleep, args=(600,))
    sleeper.start()
    assert sleeper.exitcode is None
    sleeper.terminate()
    sleeper.join()
    assert sleeper.exitcode == -signal.SIGTERM
    process.close()
    sleeper.close()


def test_shared_objects(context):
    value, lock = context.Value("i", 0), context.Lock()
    processes = [context.Process(target=add, args=(lock, value)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert value.value == 400
    memory = shared_memory.SharedMemory(create=True, size=4096)
    process = context.Process(target=fill, args=(memory.name,))
    process.start()
    process.join()
    assert memory.buf[0] == 42
    memory.close()
    memory.unlink()
    ours, theirs = context.Pipe()
    process = context.Process(target=send, args=(theirs,))
    process.start()
    assert ours.recv() == ["over", "a", "pipe"]
    process.join()
    ours.close()
    theirs.close()


def test_by_name():
    assert multiprocessing.get_context("zygote").get_start_method() == "zygote"
