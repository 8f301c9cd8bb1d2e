"""odfork.ray on a cluster of three nodes on this machine."""

import logging
import os
import signal
import time

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.cluster_utils")

import helpers  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

import odfork.ray  # noqa: E402

STORE = 100 << 20


class Nodes:
    """The cluster, of which a test may lose nodes."""

    def __init__(self):
        node = dict(num_cpus=1, object_store_memory=STORE)
        head = dict(node, include_dashboard=False)
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.workers = [self.cluster.add_node(**node) for _ in range(2)]
        quiet = dict(logging_level=logging.ERROR, log_to_driver=False)
        here = dict(env_vars={"PYTHONPATH": os.path.dirname(__file__)})  # of helpers
        ray.init(address=self.cluster.address, runtime_env=here, **quiet)

    def lose(self, name):
        node = next(n for n in self.workers if n.node_id == name)
        self.cluster.remove_node(node, allow_graceful=False)

    def close(self):
        ray.shutdown()
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def nodes():
    made = Nodes()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_left():
    """Ray keeps descriptors of its own: not looked at here."""


@pytest.fixture(scope="module")
def templates(nodes):
    with odfork.ray.Templates(imports=["helpers"], setup="helpers:set_up") as made:
        yield made


def where():
    return os.getppid(), os.getpid(), helpers.setups()


class Counter:
    def __init__(self, start):
        self.value = start

    def add(self, amount):
        self.value += amount
        return self.value

    def fail(self):
        raise KeyError("no such thing")

    def end(self):
        os._exit(7)

    def process(self):
        return os.getpid()


def hold(folder):
    """Says where it runs, and goes on once it may."""
    with open(os.path.join(folder, str(os.getppid())), "w", encoding="ascii"):
        pass
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.01)
    return os.getppid()


def started(folder, count):
    """Templates whose children have begun."""
    for _ in range(6000):
        found = [int(name) for name in os.listdir(folder) if name != "go"]
        if len(found) >= count:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"{count} tasks did not start")


def test_tasks_run_in_children_of_their_nodes_template(templates):
    infos = templates.info()
    pids = {info["pid"] for info in infos}
    assert len(pids) == 3 == len({info["node"] for info in infos})
    task = templates.remote(where)
    parents, own, setups = zip(*ray.get([task.remote() for _ in range(6)]))
    assert set(parents) == pids and len(set(own)) == 6 and set(setups) == {1}


def test_arguments_and_exceptions(templates):
    add = templates.remote(lambda a, b=0: a + b)
    assert ray.get(add.remote(ray.put(1), b=2)) == 3
    assert ray.get(add.remote(add.remote(1), b=1)) == 2
    with pytest.raises(KeyError, match="what"):
        ray.get(templates.remote(helpers.fail).remote("what"))


def test_actors(templates):
    counter = templates.actor(Counter).remote(5)
    assert ray.get([counter.add.remote(n) for n in (1, 2)]) == [6, 8]
    with pytest.raises(KeyError):
        ray.get(counter.fail.remote())
    assert ray.get(templates.remote(lambda c: c is not None).remote(1))
    process = ray.get(counter.process.remote())
    counter.kill()
    with pytest.raises(odfork.ray.Lost):
        ray.get(counter.add.remote(1))
    assert not os.path.exists(f"/proc/{process}/exe")
    ends = templates.actor(Counter).remote(0)
    with pytest.raises(odfork.ray.Lost, match="status 7"):
        ray.get(ends.end.remote())


def test_reload(templates, tmp_path):
    before = {info["pid"] for info in templates.info()}
    running = templates.remote(hold).remote(str(tmp_path))
    started(tmp_path, 1)
    templates.reload()
    assert not before & {info["pid"] for info in templates.info()}
    (tmp_path / "go").touch()
    assert ray.get(running) in before


def test_a_killed_template_is_made_again_with_its_tasks(templates, tmp_path):
    running = templates.remote(hold).remote(str(tmp_path))
    (lost,) = started(tmp_path, 1)
    os.kill(lost, signal.SIGKILL)
    started(tmp_path, 2)
    (tmp_path / "go").touch()
    assert ray.get(running) != lost


def test_a_node_is_killed_in_mid_task(nodes, templates, tmp_path):
    templates.refresh()  # the one before may have been started again on another node
    counter = templates.actor(Counter)
    actors = [counter.remote(n) for n in range(3)]
    running = [templates.remote(hold).remote(str(tmp_path)) for _ in range(3)]
    begun = started(tmp_path, 3)
    on = {info["pid"]: info["node"] for info in templates.info()}
    assert len(set(on.values())) == 3 and set(on) == set(begun), (on, begun)
    lost = next(pid for pid in begun if on[pid] == nodes.workers[0].node_id)
    nodes.lose(on[lost])
    again = set(started(tmp_path, 4)) - set(begun)
    (tmp_path / "go").touch()
    assert set(ray.get(running)) == (set(begun) - {lost}) | again
    told = []
    for actor in actors:
        try:
            told.append(ray.get(actor.add.remote(1)))
        except odfork.ray.Lost:
            told.append("lost")
    assert sorted(map(str, told))[-1] == "lost" and told.count("lost") == 1
    templates.refresh()
    assert len(templates.info()) == 2
    assert ray.get(templates.remote(helpers.add).remote(1, 1)) == 2
