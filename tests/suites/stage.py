"""What every suite runs on: a folder of its own, the launcher's words for a mode, a limit on time,
and the end of every process that was started."""

import os
import shutil
import signal
import subprocess
import tempfile


def heed_signals():
    """In the new process: what a job in the background ignores, tests expect to get."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


MODES = {"auto": [], "huge": ["--freeze", "eager", "--image", "huge"],
         "small": ["--freeze", "eager", "--image", "small"]}


class Stage:
    def __init__(self, release, mode):
        self.launcher = []
        if mode != "stock":
            self.launcher = [f"{release}/odfork", "run", "--quiet", *MODES[mode], "--"]
        self.folder = None
        self.processes = []

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="odfork-suites.")
        os.chmod(self.folder, 0o755)
        return self

    def __exit__(self, *_):
        for process in self.processes:
            self.end(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, command, log, **more):
        """A process that goes on; its output goes to a file of the folder."""
        with open(os.path.join(self.folder, log), "ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=heed_signals, **{"cwd": self.folder, **more})
        self.processes.append(process)
        return process

    def run(self, command, seconds, log="log", **more):
        """The exit status, or None when the time was over; the output is in the log."""
        process = self.start(command, log, **more)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.end(process)

    def end(self, process):
        """The process, and with it everything of its session, which is its own."""
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()

    def read(self, log="log"):
        with open(os.path.join(self.folder, log), errors="replace") as file:
            return file.read()


def account():
    """Words that make root an ordinary account: some servers refuse to run as root."""
    if os.getuid() != 0:
        return [], os.getuid()
    import pwd
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        entry = pwd.getpwnam("nobody")
    words = ["/usr/bin/setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}",
             "--clear-groups"]
    return words, entry.pw_uid
