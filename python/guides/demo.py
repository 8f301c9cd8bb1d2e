"""What the scripts of the guides share: starting a program, asking it, stopping it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 120  # before a program that hangs is given up


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.contextmanager
def running(command, **options):
    """The program in this folder, ended by SIGTERM, by SIGKILL if it does not end then."""
    env = {**os.environ, **options.pop("env", {})}
    env["PYTHONPATH"] = os.pathsep.join([HERE, *env.get("PYTHONPATH", "").split(os.pathsep)])
    process = subprocess.Popen(command, cwd=HERE, env=env, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(condition, what):
    """What the condition gives, once that is true."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(f"{what}: nothing after {SECONDS} seconds")


def ask_until(url, processes):
    """Asks until so many processes have answered; one answer of each."""
    seen = {}

    def ask():
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                one = json.load(answer)
        except (urllib.error.URLError, ConnectionError):
            return None
        seen[one["process"]] = one
        return len(seen) >= processes

    until(ask, url)
    return list(seen.values())


@contextlib.contextmanager
def redis():
    """A broker on a socket in a folder of its own; the socket's path."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "redis")
        command = [shutil.which("redis-server") or "redis-server", "--port", "0"]
        command += ["--unixsocket", path, "--save", "", "--dir", folder]
        with running(command, stdout=subprocess.DEVNULL):
            until(lambda: os.path.exists(path), "redis-server")
            yield path
