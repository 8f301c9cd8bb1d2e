"""One running program of the demo: starting it, asking it, ending it, and what odfork said about it.

Owns: the pipes, the environment, the statistics file. Does not own what is asked or how it is judged.
Rule: a program gets the same environment on both sides, free of ODFORK_* and LD_PRELOAD; the only
difference is `odfork run --freeze eager ... --` before its command line. It gets a session of its
own, so Ctrl-C reaches only the driver, which then ends it through its stdin.
"""
import json
import os
import subprocess


class Broken(Exception):
    """The program ended or said something unexpected."""


def clean_environment():
    return {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("ODFORK")}


class Instance:
    def __init__(self, label, command, odfork=None, stats_file=None):
        self.label, self.stats_file = label, stats_file
        prefix = []
        if odfork:
            prefix = [odfork, "run", "--freeze", "eager", "--stats", "json", "--stats-file", stats_file, "--"]
        self.process = subprocess.Popen(prefix + command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1, env=clean_environment(), start_new_session=True)

    def wait_ready(self, on_progress):
        """Reads `progress PERCENT` lines until `ready`; returns the numbers of `ready`."""
        while True:
            words = self._answer()
            if words[0] == "ready":
                return [float(w) for w in words[1:]]
            if words[0] != "progress":
                raise Broken(f"{self.label}: said {' '.join(words)!r} while loading")
            on_progress(int(words[1]))

    def ask(self, command):
        try:
            self.process.stdin.write(command + "\n")
        except OSError as error:
            raise Broken(f"{self.label}: gone before {command!r} ({error})") from error
        return self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise Broken(f"{self.label}: ended unexpectedly, status {self.process.wait()}")
        return line.split()

    def scheduled(self):
        """(ms on a CPU, ms ready but waiting for one) of the program's main thread so far, or None."""
        try:
            with open(f"/proc/{self.process.pid}/schedstat", encoding="ascii") as f:
                ran, waited = f.read().split()[:2]
        except (OSError, ValueError):
            return None
        return int(ran) / 1e6, int(waited) / 1e6

    def end(self):
        """Ends it by its protocol; returns (tests, failed, exit status)."""
        words = self.ask("quit")
        if words[0] != "bye":
            raise Broken(f"{self.label}: answered {' '.join(words)!r} to quit")
        return int(words[1]), int(words[2]), self.process.wait(timeout=60)

    def abandon(self):
        """Ends it whatever it is doing: end of input first, then its own process only."""
        if self.process.poll() is not None:
            return
        try:
            self.process.stdin.close()
            self.process.wait(timeout=1)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()

    def statistics(self):
        """What odfork wrote about it, or None when there is no such file or it is not schema 1."""
        try:
            with open(self.stats_file, encoding="utf-8") as f:
                found = json.loads(f.readline())
        except (OSError, ValueError, TypeError):
            return None
        return found if isinstance(found, dict) and found.get("schema") == 1 else None
