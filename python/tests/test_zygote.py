"""Templates and their children."""

import asyncio
import ctypes
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import helpers
import pytest

import odfork
from odfork import _process
from odfork.zygote import protocol
from odfork.zygote.client import PROGRAM
from odfork.zygote.connection import pair
from odfork.zygote.protocol import Frame, Kind, Tag


@pytest.fixture(scope="module")
def zygote():
    with odfork.Zygote(imports=["json", "helpers"], setup="helpers:set_up") as made:
        yield made


def gone(pid):
    """Whether the process has ended within a generous time."""
    for _ in range(2000):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_calls_return_and_raise(zygote):
    assert zygote.call(helpers.add, 1, b=2) == 3
    with pytest.raises(KeyError, match="what") as caught:
        zygote.call(helpers.fail, "what")
    assert "helpers.py" in str(caught.value.__cause__)
    with pytest.raises(RuntimeError, match="odd"):
        zygote.call(helpers.unpicklable)


def test_the_template_sets_up_once(zygote):
    assert [zygote.call(helpers.setups) for _ in range(3)] == [1, 1, 1]
    assert helpers.setups() == 0
    info = zygote.info()
    assert info["threads"] == 1 and info["pid"] == zygote.pid and info["children"] == 0


def test_a_child_that_waits_has_copied_what_the_first_one_wrote(zygote):
    assert zygote.call(helpers.copied_early) > 10
    with odfork.Zygote(imports=["helpers"], spare=False) as without:
        assert without.call(helpers.copied_early) == 0


def test_children_are_shaped_like_popen(zygote):
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child = zygote.start(helpers.write, ("hello",), **pipes)
    assert child.communicate(timeout=60) == ("hello\n", "to stderr\n")
    assert child.returncode == 0 == child.poll() == child.wait()
    child = zygote.start(helpers.echo, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.communicate(b"x" * 300_000) == (b"X" * 300_000, None)
    both = zygote.start(
        helpers.write, ("a",), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert sorted(both.communicate()[0].split("\n")) == ["", "a", "to stderr"]


def test_nothing_is_lost_by_a_timeout(zygote, tmp_path):
    flag = tmp_path / "go"
    child = zygote.start(helpers.write_twice, (str(flag),), stdout=subprocess.PIPE, text=True)
    read = b""
    while b"first" not in read:
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            child.communicate(timeout=0.1)
        read = caught.value.output or b""
    flag.touch()
    assert child.communicate()[0] == "first\nsecond\n"


def test_statuses(zygote):
    assert zygote.start(helpers.exit_with, (7,)).wait() == 7
    silent = dict(stderr=subprocess.DEVNULL)
    assert zygote.start(helpers.exit_with, ("text",), **silent).wait() == 1
    assert zygote.start(helpers.fail, ("x",), **silent).wait() == 1
    child = zygote.start(time.sleep, (600,))
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    child.terminate()
    assert child.wait() == -signal.SIGTERM
    child.kill()  # nothing to kill any more
    assert child.user_time >= 0 and child.largest_resident > 0


def test_programs(zygote, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(__name__, sys.argv[1:], __file__)")
    out = dict(stdout=subprocess.PIPE, text=True)
    said = zygote.start(script=str(script), argv=["x"], **out).communicate()[0]
    assert said == f"__main__ ['x'] {script}\n"
    said = zygote.start(command="import sys; print(sys.argv)", argv=["y"], **out).communicate()[0]
    assert said == "['-c', 'y']\n"
    (tmp_path / "modul.py").write_text("print('as', __name__)")
    said = zygote.start(module="modul", cwd=tmp_path, **out).communicate()[0]
    assert said == "as __main__\n"
    with pytest.raises(TypeError):
        zygote.start(helpers.add, script="both")


def test_surroundings(zygote, tmp_path):
    read, write = os.pipe()
    child = zygote.start(
        helpers.send_where,
        (77,),
        cwd=tmp_path,
        env={"WORD": "ü=1"},
        umask=0o27,
        limits={resource.RLIMIT_CORE: (0, 0)},
        pass_fds=[write] if write == 77 else [os.dup2(write, 77)],
    )
    child.wait()
    os.close(write)
    if write != 77:
        os.close(77)
    with open(read, encoding="utf-8") as stream:
        assert eval(stream.read()) == (str(tmp_path), "ü=1", 0o27, (0, 0))
    here = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, _, _, limit, group, session = zygote.call(helpers.surroundings)
    assert limit == here and group == os.getpgid(0) and session == os.getsid(0)


def test_an_empty_environment(zygote):
    shown = dict(command="import os; print(dict(os.environ))", stdout=subprocess.PIPE)
    assert zygote.start(**shown, env={}).communicate()[0] == b"{}\n"
    assert zygote.start(**shown, env={"A": ""}).communicate()[0] == b"{'A': ''}\n"


def test_children_have_nothing_of_the_template(zygote):
    others = [zygote.start(time.sleep, (600,)) for _ in range(5)]
    # Newer versions of libffi keep themselves open in every process that has used ctypes.
    seen = [name for name in zygote.call(helpers.targets) if "/libffi.so" not in name]
    assert len(seen) <= 3 + 1  # standard streams, the answer's pipe
    for other in others:
        other.kill()
        other.wait()

    assert not [name for name in zygote.call(helpers.targets) if name.startswith("socket:")]


def spare_of(zygote):
    """The child that waits for the next request."""
    zygote.info()  # the answer comes after it was made
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as stat:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) == zygote.pid:
                    return int(name)
        except OSError:
            pass
    return None


def test_a_child_is_ready_before_it_is_asked_for():
    with odfork.Zygote(imports=["helpers"]) as zygote:
        for _ in range(3):
            spare = spare_of(zygote)
            assert zygote.call(os.getpid) == spare
        large = os.urandom(1 << 20)
        assert zygote.call(len, large) == len(large)
        spare = spare_of(zygote)
    assert gone(spare)


def test_an_interrupt_before_the_request_is_not_the_child_s():
    with odfork.Zygote(imports=["helpers"]) as zygote:
        for _ in range(3):
            os.kill(spare_of(zygote), signal.SIGINT)
            time.sleep(0.05)
            assert zygote.call(helpers.add, 1) == 1


def test_a_descriptor_that_is_none(zygote):
    before = zygote.pid
    with pytest.raises(OSError, match="Bad file descriptor"):
        zygote.start(helpers.setups, pass_fds=[99999])
    assert zygote.call(helpers.add, 1) == 1 and zygote.pid == before


def test_many_descriptors(zygote):
    before = zygote.pid
    null = os.open(os.devnull, os.O_RDWR)
    fds = [os.dup(null) for _ in range(250)]
    assert zygote.start(helpers.setups, pass_fds=fds).wait() == 0
    with pytest.raises(protocol.ProtocolError, match="251 descriptors"):
        zygote.start(helpers.setups, pass_fds=[*fds, null])
    assert zygote.call(helpers.add, 1) == 1 and zygote.pid == before
    for fd in [*fds, null]:
        os.close(fd)


@pytest.mark.parametrize("spare", [True, False])
def test_an_interrupt_of_a_child_that_has_just_started(spare):
    # A job in the background is started with it ignored, and so would a child be.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with odfork.Zygote(imports=["helpers"], spare=spare) as zygote:
        for _ in range(5):
            child = zygote.start(time.sleep, (60,), stderr=subprocess.DEVNULL)
            child.send_signal(signal.SIGINT)
            assert child.wait() == -signal.SIGINT
    signal.signal(signal.SIGINT, before)


def test_a_spare_child_that_was_killed_is_not_missed():
    with odfork.Zygote(imports=["helpers"]) as zygote:
        spare = spare_of(zygote)
        os.kill(spare, signal.SIGKILL)
        assert gone(spare) and zygote.call(os.getpid) != spare
        assert zygote.call(helpers.add, 1) == 1
    with odfork.Zygote(imports=["helpers"], spare=False) as zygote:
        assert spare_of(zygote) is None and zygote.call(helpers.add, 1) == 1


def test_a_detached_child_outlives_a_zygote_that_closes_at_once(tmp_path):
    note = tmp_path / "pid"
    with odfork.Zygote(imports=["helpers"]) as zygote:
        spare_of(zygote)
        child = zygote.start(helpers.hold, (str(note),), detached=True)
    while not note.exists() or not note.read_text():
        os.kill(child.pid, 0)
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


def test_deadline_and_detached(zygote, tmp_path):
    assert zygote.start(time.sleep, (600,), deadline=0.05).wait() == -signal.SIGKILL
    note = tmp_path / "pid"
    with odfork.Zygote(imports=["helpers"]) as other:
        child = other.start(helpers.hold, (str(note),), detached=True)
        while not note.exists() or not note.read_text():
            time.sleep(0.01)
    os.kill(child.pid, 0)  # its zygote is closed, it lives
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


def test_a_child_whose_parent_died_before_it_began():
    pid = os.fork()
    if pid == 0:
        _process.end_with(os.getpid())  # not its parent
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


@pytest.fixture
def slow_reaper():
    """This process becomes the parent of orphans, and does not reap them at once."""
    prctl, subreaper = ctypes.CDLL(None).prctl, 36
    prctl(subreaper, 1, 0, 0, 0)
    yield
    prctl(subreaper, 0, 0, 0, 0)


def test_the_status_of_a_child_that_has_lost_its_template(tmp_path, slow_reaper):
    with odfork.Zygote(imports=["helpers"]) as zygote:
        flag = tmp_path / "flag"
        child = zygote.start(helpers.exit_when, (str(flag), 7), detached=True)
        killed = zygote.start(time.sleep, (600,))
        zygote.info()
        os.kill(zygote.pid, signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        flag.touch()
        assert child.wait() == 7
    for pid in (child.pid, killed.pid):
        os.waitpid(pid, 0)


def test_at_exit_functions_of_a_child_run(zygote, tmp_path):
    zygote.start(helpers.at_exit, (str(tmp_path / "done"),)).wait()
    assert (tmp_path / "done").exists()


def test_children_end_with_their_client(tmp_path):
    note = tmp_path / "pid"
    program = (
        "import odfork, helpers, os, time\n"
        "z = odfork.Zygote(imports=['helpers'])\n"
        f"c = z.start(helpers.hold, ({str(note)!r},))\n"
        f"while not os.path.exists({str(note)!r}): time.sleep(0.01)\n"
        "print(z.pid, c.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE)
    template, child = map(int, ran.stdout.split())
    assert gone(child) and gone(template)


def test_a_lost_template_takes_its_children_and_is_made_again():
    with odfork.Zygote(imports=["helpers"]) as zygote:
        done = zygote.start(helpers.exit_with, (3,))
        running = zygote.start(time.sleep, (600,))
        done.wait()
        old = zygote.pid
        os.kill(old, signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL and done.returncode == 3
        assert zygote.call(helpers.add, 1) == 1
        assert zygote.pid != old


def test_reload_keeps_the_children_of_the_old_template():
    with odfork.Zygote(imports=["helpers"]) as zygote:
        child = zygote.start(time.sleep, (600,))
        old = zygote.pid
        zygote.reload()
        assert zygote.pid != old and child.poll() is None
        child.kill()
        assert child.wait() == -signal.SIGKILL


def test_nested_zygotes():
    with odfork.Zygote(imports=["helpers"], setup="helpers:set_up") as base:
        with base.nested(setup="helpers:set_up", setup_args=(10,)) as model:
            assert model.call(helpers.setups) == 11 and base.call(helpers.setups) == 1
            running = model.start(time.sleep, (600,))
            os.kill(base.pid, signal.SIGKILL)
            assert running.wait() == -signal.SIGKILL


def test_threads_in_the_template_mean_new_interpreters():
    with odfork.Zygote(imports=["helpers"], setup="helpers:set_up_thread") as zygote:
        assert "2 threads" in zygote.fallback and zygote.fallback.endswith(": poller")
        assert zygote.info()["thread_names"] == ["poller"]
        assert zygote.call(helpers.add, 2) == 2
        child = zygote.start(
            helpers.write, ("x",), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert child.communicate()[0] == b"x\n" and child.returncode == 0
        assert zygote.start(time.sleep, (600,), deadline=0.05).wait() == -signal.SIGKILL
        with zygote.nested(setup="helpers:set_up", setup_args=(10,)) as nested:
            assert nested.fallback and nested.call(helpers.setups) == 10
    with odfork.Zygote(setup="helpers:set_up_thread", threads="allow") as zygote:
        assert not zygote.fallback and zygote.call(helpers.add, 2) == 2


def test_a_nested_template_with_threads_has_what_its_base_has():
    with odfork.Zygote(setup="helpers:set_up") as base:
        with base.nested(setup="helpers:set_up_thread") as nested:
            assert nested.fallback and not base.fallback
            assert nested.call(helpers.setups) == 1


def test_reload_looks_for_threads_anew(tmp_path):
    flag = str(tmp_path / "flag")
    with odfork.Zygote(setup="helpers:set_up_thread_once", setup_args=(flag,)) as zygote:
        assert zygote.fallback
        zygote.reload()
        assert not zygote.fallback and zygote.call(os.getppid) == zygote.pid


def test_what_goes_wrong_in_a_recipe_is_told():
    with pytest.raises(odfork.ZygoteError, match="no such model"):
        odfork.Zygote(setup="helpers:set_up_fails")
    with pytest.raises(odfork.ZygoteError, match="no_such_module"):
        odfork.Zygote(imports=["no_such_module"])


def test_functions_of_the_main_module(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import odfork\n"
        "def double(x): return 2 * x\n"
        "def set_up(): globals().update(warm=True)\n"
        "if __name__ == '__main__':\n"
        "    with odfork.Zygote() as z: print(z.call(double, 4))\n"
        "    with odfork.Zygote(setup=set_up) as z: print(z.call(double, 5))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True)
    assert ran.stdout == "8\n10\n", ran.stderr


def test_asyncio(zygote):
    async def many():
        calls = [zygote.call_async(helpers.add, n, 1) for n in range(20)]
        results = await asyncio.gather(*calls)
        child = zygote.start(helpers.exit_with, (4,))
        slow = asyncio.ensure_future(zygote.call_async(time.sleep, 600))
        await asyncio.sleep(0.01)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        return results, await child.wait_async()

    assert asyncio.run(many()) == (list(range(1, 21)), 4)


def test_threads_of_a_client(zygote):
    results = []

    def work(n):
        for i in range(10):
            results.append(zygote.call(helpers.add, n, i) == n + i)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80


def test_a_large_request(zygote):
    data = os.urandom(20 << 20)
    assert zygote.call(len, data) == 20 << 20


def test_a_thousand_children_killed_at_random():
    """No orphan, no lost status, no descriptor left, neither here nor in the template."""
    chance = random.Random(16)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with odfork.Zygote() as zygote:
            zygote.info()
            theirs = len(os.listdir(f"/proc/{zygote.pid}/fd"))
            children = [zygote.start(time.sleep, (600,)) for _ in range(1000)]
            chance.shuffle(children)
            killed = {c: chance.choice((signal.SIGKILL, signal.SIGTERM)) for c in children[:500]}
            for child, number in killed.items():
                child.send_signal(number)
            for child in chance.sample(list(killed), len(killed)):
                assert child.wait() == -killed[child]
            assert zygote.info()["children"] == 500
            assert len(os.listdir(f"/proc/{zygote.pid}/fd")) == theirs
            os.kill(zygote.pid, signal.SIGKILL)
            assert [c.wait() for c in children[500:]] == [-9] * 500
            assert all(gone(c.pid) for c in children)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_another_process_is_told(zygote):
    pid = os.fork()
    if pid == 0:
        try:
            zygote.call(helpers.add, 1)
        except RuntimeError:
            os._exit(9)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert zygote.call(helpers.add, 1) == 1


def test_stop_arrives_from_a_client_that_reads_nothing(tmp_path):
    path = str(tmp_path / "socket")
    ours, theirs = pair()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, listener, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        listener.bind(path)
        listener.listen()
        command = [sys.executable, "-c", PROGRAM, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        protocol.send(ours, Frame(0, descriptors=[listener.fileno()]))
        protocol.receive(ours)
        client.connect(path)
        select.select([client], [], [])  # the template has said that it is ready
        protocol.send(client, Frame(Kind.STOP, 1))
    try:
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"OZ\x02\x01" + bytes(8),
        b"OZ\x01\x01" + bytes(8) + b"abc",
        b"OZ\x01\x01" + bytes(8) + b"\x01\x00\x00\x00\xff\xff\xff\xff",
        b"OZ\x01\x01" + bytes(4) + b"\x01\0\0\0",
    ],
)
def test_bad_frames(data):
    ours, theirs = pair()
    with ours, theirs:
        ours.send(data)
        with pytest.raises(protocol.ProtocolError):
            protocol.receive(theirs)


def test_frames_travel_whole():
    ours, theirs = pair()
    with ours, theirs:
        frame = Frame(Kind.SPAWN, 7).add(Tag.ARGUMENT, b"").add(Tag.CALL, b"x" * 200_000)
        frame.descriptors.append(0)
        protocol.send(ours, frame)
        got = protocol.receive(theirs)
        assert (got.kind, got.request, got.fields) == (1, 7, frame.fields)
        assert len(got.descriptors) == 1
        got.close()


def test_nested_while_the_template_dies():
    with odfork.Zygote(setup=helpers.set_up) as zygote:
        os.kill(zygote.pid, signal.SIGSTOP)  # it takes the request, and dies before it answers
        stopped = zygote.pid
        timer = threading.Timer(0.3, os.kill, (stopped, signal.SIGKILL))
        timer.start()
        with zygote.nested(setup=helpers.set_up) as nested:
            assert nested.call(helpers.setups) == 2
        timer.join()
        assert zygote.pid != stopped
