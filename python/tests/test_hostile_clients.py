"""What no client may do to a template: ending it, and so the children of all others."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time

import helpers
import pytest

import odfork
from odfork.zygote import protocol
from odfork.zygote.client import PROGRAM
from odfork.zygote.connection import pair
from odfork.zygote.protocol import Frame, Kind, Tag


@pytest.fixture
def zygote():
    with odfork.Zygote(imports=["helpers"]) as made:
        yield made
        assert not made.lost


@pytest.fixture
def few_descriptors(tmp_path):
    """A template that may have 32 descriptors: its path and its process."""
    path = str(tmp_path / "socket")
    ours, theirs = pair()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, listener:
        listener.bind(path)
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32)),
        )
        frame = Frame(0, descriptors=[listener.fileno()])
        for folder in sys.path:
            frame.add(Tag.PATH, os.fsencode(folder))
        protocol.send(ours, frame)
        assert protocol.receive(ours).kind == Kind.READY
        try:
            yield path, process
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()


def connect(template):
    path, _ = template
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(60)
    client.connect(path)
    return client


def kind_of_next(client):
    frame = protocol.receive(client)
    frame.close()
    return frame.kind


def test_a_deadline_of_years_ends_nobody(zygote):
    other = zygote.start(helpers.exit_when, ("/proc/self", 7))
    long = zygote.start(helpers.add, (1,), deadline=1e9)
    assert long.wait(timeout=1e9) == 0
    assert other.wait() == 7


def test_a_deadline_that_is_no_number_of_seconds(zygote):
    connection = zygote._connection
    number = connection.request(
        Frame(Kind.SPAWN).add(Tag.COMMAND, b"pass").add(Tag.DEADLINE, b"\xff" * 4096)
    )
    child = odfork.zygote.Child(connection, number, "child")
    assert child.wait() == 0


def test_a_request_that_makes_no_sense_is_its_client_s_alone(few_descriptors):
    with connect(few_descriptors) as wrong, connect(few_descriptors) as right:
        assert protocol.receive(wrong).kind == protocol.receive(right).kind == Kind.READY
        frame = Frame(Kind.SPAWN, 1).add(Tag.COMMAND, b"import time; time.sleep(600)")
        protocol.send(right, frame)
        started = protocol.receive(right)
        assert started.kind == Kind.STARTED
        started.close()
        wrong.send(b"OZ\x01\x01" + bytes(8) + b"\x0c\x00\x00\x00\xff\xff\xff\xff")
        assert protocol.receive(wrong) is None
        os.kill(started.int(Tag.PROCESS), signal.SIGTERM)
        ended = protocol.receive(right)
        assert (ended.kind, ended.int(Tag.STATUS)) == (Kind.EXITED, signal.SIGTERM)


def test_more_clients_than_descriptors_wait(few_descriptors):
    _, process = few_descriptors
    clients = [connect(few_descriptors) for _ in range(40)]
    while process.poll() is None and len(os.listdir(f"/proc/{process.pid}/fd")) < 32:
        time.sleep(0.01)
    for client in clients[:30]:
        client.close()
    assert protocol.receive(clients[39]).kind == Kind.READY
    protocol.send(clients[39], Frame(Kind.SPAWN, 1).add(Tag.COMMAND, b"pass"))
    assert kind_of_next(clients[39]) == Kind.STARTED
    assert kind_of_next(clients[39]) == Kind.EXITED
    for client in clients[30:]:
        client.close()


def test_a_request_with_more_descriptors_than_are_free_fails_alone(few_descriptors):
    with connect(few_descriptors) as client:
        assert protocol.receive(client).kind == Kind.READY
        long = b"import time; time.sleep(600)"
        protocol.send(client, Frame(Kind.SPAWN, 1).add(Tag.COMMAND, long))
        assert kind_of_next(client) == Kind.STARTED
        many = Frame(Kind.SPAWN, 2, descriptors=[0] * 60).add(Tag.COMMAND, b"pass")
        numbers = [number.to_bytes(4, "little") for number in range(60)]
        protocol.send(client, many.add(Tag.TARGETS, b"".join(numbers)))
        failed = protocol.receive(client)
        assert (failed.kind, failed.request) == (Kind.FAILED, 2)
        protocol.send(client, Frame(Kind.INFO, 3))
        assert protocol.receive(client).int(Tag.CHILDREN) == 1
