"""What processes write is written once, by whom it is of."""

import os
import subprocess
import sys

import helpers
import pytest

import odfork

TESTS = """
import atexit, ctypes, pytest, sys

@pytest.fixture(scope="class")
def shared():
    ctypes.CDLL(None).printf(b"shared by C,")
    print("shared", end=",")
    yield
    print("shared is dropped")
    raise RuntimeError("after the last")

@pytest.mark.usefixtures("shared")
class Test:
    @pytest.mark.parametrize("n", range(4))
    def test(self, n, record_property):
        record_property("n", n)
        print("test", n, end=",")
        ctypes.CDLL(None).printf(b"by C %d,", n)
        atexit.register(print, "at exit", n, end=",")
"""


def test_nothing_is_captured(pytester, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    pytester.makepyfile(TESTS)
    said = pytester.runpytest_subprocess("--odfork", "-s", "-q").stdout.str()
    parts = [f"test {n},at exit {n},by C {n}," for n in range(4)]
    assert "shared,shared by C," + ".".join(parts) + "shared is dropped" in said
    assert said.count("shared,") == 1


def test_a_shared_fixture_that_fails_in_the_end(pytester):
    pytester.makepyfile(TESTS)
    family = ("--junitxml=seen.xml", "-o", "junit_family=xunit1")
    said = pytester.runpytest_subprocess("--odfork", "-q", *family).stdout.str()
    assert "4 passed, 1 error" in said and "shared is dropped" in said
    seen = (pytester.path / "seen.xml").read_text(encoding="utf-8")
    assert [n for n in range(4) if f'<property name="n" value="{n}"' in seen] == [0, 1, 2, 3]


def test_output_of_the_set_up_is_written_once():
    program = (
        "import odfork, helpers\n"
        "z = odfork.Zygote(imports=['helpers'], setup='helpers:set_up_output', setup_args=(1,))\n"
        "for _ in range(3): z.start(print, ('child',)).wait()"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""}
    ran = subprocess.run([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE)
    assert ran.stdout == b"set up,by C,child\nchild\nchild\n"


def test_standard_streams_that_the_template_replaced():
    with odfork.Zygote(imports=["helpers"]) as zygote:
        child = zygote.start(helpers.write_by_c, stdout=subprocess.PIPE)
        assert child.communicate() == (b"from C", None)
    with odfork.Zygote(setup=helpers.set_up_output, setup_args=(0,)) as other:
        child = other.start(helpers.write_by_c, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.communicate() == (b"from C", b"")


def test_a_script_sees_what_it_would_see(tmp_path):
    (tmp_path / "beside.py").write_text("value = 5\n")
    text = "import sys, beside\nprint(__name__, __file__, sys.argv, sys.path[0])"
    (tmp_path / "script").write_text(text)
    plain = subprocess.run(
        [sys.executable, "script", "1"], cwd=tmp_path, stdout=subprocess.PIPE, check=True
    )
    with odfork.Zygote() as zygote:
        child = zygote.start(script="script", argv=["1"], cwd=tmp_path, stdout=subprocess.PIPE)
        assert child.communicate()[0] == plain.stdout


@pytest.fixture(scope="module")
def zygote():
    with odfork.Zygote(imports=["helpers"]) as made:
        yield made


ENDS = {
    "error": "def f():\n    1 / 0\nf()",
    "source": "x =",
    "hook": "import sys\nsys.excepthook = lambda *e: print('hook', e[0].__name__)\n1 / 0",
    "broken hook": "import sys\nsys.excepthook = 5\nprint('said')\nsys.exit('text')",
    "interrupt": "import atexit, os, signal\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "atexit.register(print, 'at exit')\n"
    "print('in a buffer')\n"
    "os.kill(os.getpid(), signal.SIGINT)",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_script_ends_as_it_would_end(zygote, tmp_path, end):
    (tmp_path / "script").write_text(ENDS[end])
    pipes = dict(cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    plain = subprocess.run([sys.executable, "script"], **pipes)
    child = zygote.start(script="script", **pipes)
    assert child.communicate() == (plain.stdout, plain.stderr)
    assert child.returncode == plain.returncode


def test_errors_show_the_user_s_frames_alone(zygote):
    child = zygote.start(helpers.fail, ("x",), stderr=subprocess.PIPE, text=True)
    said = child.communicate()[1].splitlines()
    assert 'helpers.py"' in said[1] and said[-1] == "KeyError: 'x'"
    with pytest.raises(odfork.ZygoteError) as raised:
        odfork.Zygote(setup="no_colon")
    assert "recipe.py" not in str(raised.value) and "module:function" in str(raised.value)
