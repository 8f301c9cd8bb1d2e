"""One redis-server with MB megabytes in values of SIZE bytes: BGSAVE is timed, its dump loaded
again.

Owns a server's life and what is read from it; who is compared with whom is in measure.py.
"""

import os
import socket
import subprocess
import time

SERVER = "/usr/bin/redis-server"


class Server:
    """A server on a socket of its own; `environment` chooses stock or odfork, `command` starts
    it.
    """

    command = []

    def __init__(self, folder, environment, dump="dump.rdb"):
        self.path = os.path.join(folder, "socket")
        options = ["--port", "0", "--unixsocket", self.path, "--dir", folder, "--save", "",
                   "--dbfilename", dump, "--enable-debug-command", "yes", "--logfile",
                   os.path.join(folder, "log"), "--daemonize", "no"]
        self.process = subprocess.Popen(
            [*self.command, SERVER, *options], env={**os.environ, **environment}
        )
        deadline = time.monotonic() + 120
        while True:
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(self.path)
                self.file = self.socket.makefile("rb")
                if self.ask("PING") == "PONG":
                    return
            except (OSError, RuntimeError):  # not there yet, or loading
                self.socket.close()
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError("redis-server does not answer")
            time.sleep(0.02)

    def ask(self, *words):
        text = f"*{len(words)}\r\n" + "".join(f"${len(w)}\r\n{w}\r\n" for w in map(str, words))
        self.socket.sendall(text.encode())
        line = self.file.readline().decode().rstrip("\r\n")
        if line[:1] == "$" and int(line[1:]) >= 0:
            return self.file.read(int(line[1:]) + 2).decode().rstrip("\r\n")
        if line[:1] == "-":
            raise RuntimeError(line)
        return line[1:]

    def info(self, section, field):
        text = self.ask("INFO", section)
        return dict(f.split(":", 1) for f in text.splitlines() if ":" in f)[field]

    def children_cpu(self):
        """Seconds of processor time of all that the server has waited for."""
        return sum(float(self.info("cpu", f"used_cpu_{kind}_children")) for kind in ("user", "sys"))

    def save(self):
        """Seconds from the command to the end of the child, of processor time in it and in helper
        tasks, and bytes it copied on write."""
        before, begin = self.children_cpu(), time.monotonic()
        self.ask("BGSAVE")
        while self.info("persistence", "rdb_bgsave_in_progress") != "0":
            time.sleep(0.005)
        seconds = time.monotonic() - begin
        if self.info("persistence", "rdb_last_bgsave_status") != "ok":
            raise RuntimeError("BGSAVE failed")
        copied = int(self.info("persistence", "rdb_last_cow_size"))
        return seconds, self.children_cpu() - before, copied

    def stop(self):
        self.socket.sendall(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")
        self.socket.close()
        self.process.wait(60)


def fill(server, megabytes, size):
    """Values of bytes that LZF cannot make smaller, no two alike."""
    count = megabytes * (1 << 20) // size
    script = """
        local unit = {}
        math.randomseed(7)
        for i = 1, 4096 do unit[i] = string.char(math.random(0, 255)) end
        local base = string.rep(table.concat(unit), 17)
        for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
            local from = i * 37 % 4096
            local to = from + tonumber(ARGV[3]) - #tostring(i)
            redis.call('SET', 'key:' .. i, i .. string.sub(base, from + 1, to))
        end"""
    step = max(1, (32 << 20) // size)
    for first in range(0, count, step):
        server.ask("EVAL", script, 0, first, min(first + step, count) - 1, size)


def measure(folder, environment, megabytes, size, saves):
    """What `save` gives for each of `saves` dumps, and whether the last one loads as it was."""
    server = Server(folder, environment)
    try:
        fill(server, megabytes, size)
        server.save()  # the first fork freezes
        got = [server.save() for _ in range(saves)]
        digest = server.ask("DEBUG", "DIGEST")
    finally:
        server.stop()
    again = Server(folder, {})
    try:
        return got, again.ask("DEBUG", "DIGEST") == digest
    finally:
        again.stop()
