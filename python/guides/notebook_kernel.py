"""A Jupyter kernel that is a ready child of a zygote.

    odfork zygote start notebook --import ipykernel.kernelapp --import numpy
    python notebook_kernel.py install        adds the kernel "Python (zygote)" for this user

Run without arguments it does both in a folder of its own, and runs a cell, an interrupt and a
restart in such a kernel. The command `odfork` is taken from PATH, or from ODFORK.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

ODFORK = os.environ.get("ODFORK", "odfork")
NAME = "notebook"


def spec():
    words = [ODFORK, "zygote", "run", NAME, "--", "-m", "ipykernel_launcher"]
    return {
        "argv": [*words, "-f", "{connection_file}"],
        "display_name": "Python (zygote)",
        "language": "python",
        "metadata": {"debugger": False},
    }


def install(prefix=None):
    from jupyter_client.kernelspec import KernelSpecManager

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "kernel.json"), "w", encoding="utf-8") as file:
            json.dump(spec(), file)
        where = dict(prefix=prefix) if prefix else dict(user=True)
        return KernelSpecManager().install_kernel_spec(folder, "odfork-zygote", **where)


def demonstrate():
    from jupyter_client import KernelManager

    with tempfile.TemporaryDirectory() as folder:
        os.environ["JUPYTER_PATH"] = os.path.join(folder, "share", "jupyter")
        install(prefix=folder)
        manager = KernelManager(kernel_name="odfork-zygote")
        manager.start_kernel()
        client = manager.blocking_client()
        try:
            client.start_channels()
            client.wait_for_ready(timeout=120)
            run(manager, client)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def run(manager, client):
    template = int(say(client, "import os; print(os.getppid())"))
    first = say(client, "print(os.getpid())")
    sleeping = "import time\nprint('now', flush=True)\ntime.sleep(600)"
    reply = execute(client, sleeping, lambda _: manager.interrupt_kernel())
    assert reply.get("ename") == "KeyboardInterrupt", reply
    assert say(client, "print(2 + 3)") == "5"  # the cell has ended, the kernel has not
    manager.restart_kernel()
    client.wait_for_ready(timeout=120)
    second = say(client, "import os; print(os.getpid())")
    assert first != second and int(say(client, "print(os.getppid())")) == template
    print(f"kernels {first} and {second} are children of the template {template}")


def execute(client, code, printed):
    """Runs a cell; what it prints goes to a function."""

    def output(message):
        if message["msg_type"] == "stream":
            printed(message["content"]["text"])

    return client.execute_interactive(code, timeout=120, output_hook=output)["content"]


def say(client, code):
    """What the cell prints."""
    said = []
    execute(client, code, said.append)
    return "".join(said).strip()


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        start = [ODFORK, "zygote", "start", NAME, "--import", "ipykernel.kernelapp"]
        subprocess.run([*start, "--python", sys.executable], check=True)
        try:
            demonstrate()
        finally:
            subprocess.run([ODFORK, "zygote", "stop", NAME], check=True)


if __name__ == "__main__":
    if not shutil.which(ODFORK):
        sys.exit(f"{ODFORK} was not found; ODFORK=/path/to/odfork names it")
    if sys.argv[1:2] == ["install"]:
        print(install())
    else:
        main()
