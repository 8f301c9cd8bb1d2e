"""A worker that answers each job in a fork of itself, which has the data already.

    worker.py SOCKET        the socket of a redis-server

A job is a number, pushed to the list `jobs`; its answer is pushed to `answers`. A job that crashes
takes its child with it and nothing else.
"""

import os
import socket
import sys
import time

WORDS = [f"word {number}" for number in range(1_000_000)]  # what takes long to make, or to load


class Redis:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def ask(self, *words):
        text = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        self.socket.sendall(text.encode())
        return self.answer()

    def answer(self):
        kind, rest = (line := self.file.readline().decode())[:1], line[1:].rstrip("\r\n")
        if not line or kind == "-":
            raise ConnectionError(rest)
        if kind == "*":
            return [self.answer() for _ in range(max(int(rest), 0))]
        if kind == "$" and int(rest) >= 0:
            return self.file.read(int(rest) + 2)[:-2].decode()
        return rest


def connect(path):
    for _ in range(600):
        try:
            return Redis(path)
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nobody answers at {path}")


def main(path):
    redis = connect(path)
    while True:
        _, job = redis.ask("BLPOP", "jobs", "0")
        if (child := os.fork()) == 0:
            Redis(path).ask("RPUSH", "answers", WORDS[int(job)])
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            redis.ask("RPUSH", "answers", f"failed: {job}")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ConnectionError:
        sys.exit(0)
