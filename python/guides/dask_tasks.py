"""Dask tasks in fresh children of one template for each worker.

    python dask_tasks.py

A plugin gives each worker a zygote; `in_child` wraps a function so that a task runs in a child.
"""

import functools
import os

import demo
from distributed import Client, LocalCluster, WorkerPlugin, get_worker

import odfork


class Template(WorkerPlugin):
    """One zygote for each worker, started and ended with it."""

    name = "odfork-template"

    def __init__(self, **recipe):
        self.recipe = recipe

    def setup(self, worker):
        self.zygote = odfork.Zygote(**self.recipe)

    def teardown(self, worker):
        self.zygote.close()


def in_child(function):
    """The function as one that runs in a child of its worker's template."""

    @functools.wraps(function)
    def task(*args, **kwargs):
        return get_worker().plugins[Template.name].zygote.call(function, *args, **kwargs)

    return task


def square(number):
    return number * number, os.getppid()


def main():
    import dask_tasks

    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    )
    with cluster, Client(cluster) as client:
        client.register_plugin(Template(imports=["dask_tasks"], path=[demo.HERE]))
        done = client.gather(client.map(in_child(dask_tasks.square), range(8)))
    assert [number for number, _ in done] == [n * n for n in range(8)], done
    print(f"8 tasks, each in a child of one of {len({parent for _, parent in done})} templates")


if __name__ == "__main__":
    main()
