"""Tasks of odfork.ray beside Ray's own workers: start, imports, memory.

    python ray_workers.py [--tasks 30] [--imports numpy,pandas]

From the request to the first instruction behind the imports: a child of the node's template, a
worker of Ray that is new for each task (max_calls=1), and one that has done the task before. Then
the memory of each while it holds its imports: PSS, and what no other process shares.
"""

import argparse
import functools
import importlib
import logging
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import measure
import ray
import work

import odfork.ray


def task(imports):
    """When it ran, and the memory of its process then, in MB."""
    for name in imports:
        importlib.import_module(name)
    now = time.monotonic_ns()
    return now, os.getpid(), work.proportional() / 2**20, work.private() / 2**20


def sample(submit, imports):
    begin = time.monotonic_ns()
    now, pid, proportional, private = ray.get(submit(imports))
    return (now - begin) / 1e6, pid, proportional, private


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--imports", default="numpy,pandas")
    given = parser.parse_args()
    imports = given.imports.split(",")
    quiet = dict(logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
    ray.init(num_cpus=1, object_store_memory=100 << 20, **quiet)
    seen = {}
    with odfork.ray.Templates(imports=["work", *imports]) as templates:
        child = templates.remote(task).remote
        kinds = {
            "Ray's worker, new": ray.remote(max_calls=1)(task).remote,
            "Ray's worker, used": ray.remote(task).remote,
        }
        for name, other in kinds.items():  # not both in turn: one would end the other's worker
            takers = {"child of a template": child, name: other}
            for submit in takers.values():
                sample(submit, imports)
            pair = {key: functools.partial(sample, one, imports) for key, one in takers.items()}
            seen.update(measure.in_turn(pair, given.tasks))
    ray.shutdown()
    for name, samples in seen.items():
        print(f"{name}: {len({pid for _, pid, _, _ in samples})} processes")
        for what, at, unit in (("start", 0, "ms"), ("PSS", 2, "MB"), ("private", 3, "MB")):
            measure.shown(what, [one[at] for one in samples], unit)
    ours, new, used = (statistics.median(one[0] for one in many) for many in seen.values())
    print(
        f"start, to a child: a new worker of Ray {new / ours:.0f} times, a used {used / ours:.2f}"
    )


if __name__ == "__main__":
    main()
