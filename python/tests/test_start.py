"""python -m odfork, and what the module says without the library."""

import os
import subprocess
import sys

import odfork


def python(*arguments, **variables):
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_loads_the_library():
    program = "import odfork; print(odfork.available(), odfork.freeze(), odfork.stats().engine)"
    ran = python("-m", "odfork", "-c", program)
    assert ran.stdout.split()[0] == "True", ran.stderr
    assert ran.stderr == ""


def test_is_the_interpreter(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:], __name__); sys.exit(7)")
    ran = python("-m", "odfork", str(script), "a", "--b")
    assert (ran.stdout, ran.returncode) == ("['a', '--b'] __main__\n", 7)


def test_options():
    shown = "import os; print(os.environ['ODFORK_FREEZE'], os.environ['ODFORK_IMAGE'])"
    ran = python("-m", "odfork", "--freeze", "never", "--image=small", "-c", shown)
    assert (ran.stdout, ran.returncode) == ("never small\n", 0)
    ran = python("-m", "odfork", "--freeze", "always", "-c", "print('ran')")
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert ran.stderr == "odfork: --freeze is auto or eager or never, not 'always'\n"
    assert python("-m", "odfork", "--stats").returncode == 2


def test_says_in_one_line_when_it_cannot_help():
    ran = python("-m", "odfork", "-c", "print('ran')", ODFORK_LIB="/nowhere/libodfork.so")
    assert ran.stdout == "ran\n" and ran.returncode == 0
    assert ran.stderr.count("\n") == 1 and "/nowhere/libodfork.so was not found" in ran.stderr


def test_checks_that_the_library_was_loaded(tmp_path):
    broken = tmp_path / "libodfork.so"
    broken.write_bytes(b"not a library")
    ran = python("-m", "odfork", "-c", "print('ran')", ODFORK_LIB=str(broken))
    assert ran.stdout == "ran\n" and "could not be preloaded" in ran.stderr.splitlines()[0]


def test_without_the_library_all_is_plain():
    program = (
        "import odfork, os; print(odfork.available(), odfork.freeze(), odfork.stats().forks)\n"
        "pid = odfork.fork()\n"
        "if pid == 0: os._exit(5)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), odfork.reason())"
    )
    ran = python("-c", program, LD_PRELOAD="")
    first, second = ran.stdout.splitlines()
    assert first == "False False 0"
    assert second.startswith("5 libodfork.so is not loaded")


def test_forks_of_a_frozen_process_are_counted():
    program = (
        "import odfork, os; data = bytearray(os.urandom(1 << 20)) * 64\n"
        "assert odfork.freeze(), odfork.reason()\n"
        "before = odfork.stats()\n"
        "pid = odfork.fork()\n"
        "if pid == 0: os._exit(data[5] != data[5 + (1 << 20)])\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "after = odfork.stats()\n"
        "print(before.frozen_bytes >> 20 >= 60, after.forks - before.forks)\n"
        "print(odfork.thaw(), odfork.stats().frozen_bytes)"
    )
    ran = python("-m", "odfork", "-c", program)
    assert ran.stdout.splitlines() == ["True 1", "True 0"], ran.stderr


def test_types_are_declared():
    assert os.path.exists(os.path.join(os.path.dirname(odfork.__file__), "py.typed"))


FORKSERVER = """
import multiprocessing, odfork, os

def seen(_):
    return os.getppid(), odfork.available(), odfork.stats().frozen_bytes >> 20

if __name__ == "__main__":
    context = multiprocessing.get_context(METHOD)
    context.set_forkserver_preload(["big"])
    with context.Pool(2) as pool:
        servers, loaded, frozen = zip(*pool.map(seen, range(8)))
    print(context.get_start_method(), len(set(servers)), servers[0] == os.getpid())
    print(all(loaded), min(frozen) >= 60)
"""


def test_the_standard_forkserver_is_covered(tmp_path):
    """Without any change: its server is executed, and so loads the library."""
    (tmp_path / "big.py").write_text("import os\ndata = bytearray(os.urandom(1 << 20)) * 64\n")
    method = "None" if sys.version_info >= (3, 14) else '"forkserver"'  # there it is the default
    script = tmp_path / "script.py"
    script.write_text(FORKSERVER.replace("METHOD", method))
    # Before 3.14 the server finds what it preloads by this variable alone.
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ran = python("-m", "odfork", "--freeze", "eager", str(script), PYTHONPATH=path)
    assert ran.stdout == "forkserver 1 False\nTrue True\n", ran.stdout + ran.stderr
