"""gunicorn whose workers are cheap forks of a warm master.

    python -m odfork -m gunicorn -c python:web_gunicorn web_gunicorn:app

This file is the application and its configuration. Run as a script it starts that command, asks
each worker once and stops it.
"""

import gc
import json
import os
import sys

import demo

import odfork

MODEL = [number * number for number in range(200_000)]  # what every worker needs

preload_app = True  # the master imports the application; workers are forks of it
workers = 2
control_socket_disable = True


def when_ready(server):
    """gunicorn calls this in the master before it forks the first worker."""
    gc.collect()
    gc.freeze()
    odfork.freeze()


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    frozen = odfork.stats().frozen_bytes
    return [json.dumps({"process": os.getpid(), "sum": MODEL[-1], "frozen": frozen}).encode()]


def main():
    port = demo.free_port()
    command = [sys.executable, "-m", "odfork", "-m", "gunicorn", "--bind", f"127.0.0.1:{port}"]
    command += ["-c", "python:web_gunicorn", "web_gunicorn:app"]
    with demo.running(command):
        answers = demo.ask_until(f"http://127.0.0.1:{port}/", workers)
    assert all(a["sum"] == 199_999**2 and a["frozen"] > 0 for a in answers), answers
    print(f"{len(answers)} workers, {answers[0]['frozen'] >> 20} MB frozen in each")


if __name__ == "__main__":
    main()
