"""A thousand children at once, killed at random, their template too; private memory of a child."""

import os
import random
import resource
import signal
import time

import work

import odfork


def template_descriptors(zygote):
    zygote.info()  # its answer comes after the child that waits for a request was made
    return len(os.listdir(f"/proc/{zygote.pid}/fd"))


def crowd(zygote, count, seed):
    """Faults found: a wrong status, a process or a descriptor that stays."""
    chance = random.Random(seed)
    before, theirs = len(os.listdir("/proc/self/fd")), template_descriptors(zygote)
    children = [zygote.start(time.sleep, (600,)) for _ in range(count)]
    chance.shuffle(children)
    half, faults = count // 2, []
    numbers = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)
    for child in children[:half]:
        number = chance.choice(numbers)
        child.send_signal(number)
        status = child.wait()
        if status != -number:
            faults.append(f"status {status} after signal {int(number)}")
    if template_descriptors(zygote) != theirs:
        faults.append(f"{template_descriptors(zygote) - theirs} descriptors in the template")
    os.kill(zygote.pid, signal.SIGKILL)
    faults += [f"status {s} with the template" for c in children[half:] if (s := c.wait()) != -9]
    faults += [f"process {c.pid} lives" for c in children if os.path.exists(f"/proc/{c.pid}/exe")]
    after = len(os.listdir("/proc/self/fd"))
    return faults + ([f"{after - before} descriptors here"] if after != before else [])


def run(verdicts, megabytes, count):
    print(f"{count} children at once of a template of {megabytes} MB, killed at random")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    recipe = dict(imports=["work"], setup="work:hold", setup_args=(megabytes,))
    with odfork.Zygote(**recipe) as zygote:
        faults = crowd(zygote, count, seed=4)
    for fault in faults[:10]:
        print(f"  {fault}")
    verdicts.at_most("orphans, lost statuses and descriptors left", len(faults), 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def memory(verdicts, megabytes):
    print(f"private memory of a child of a template of {megabytes} MB that runs a small job")
    recipe = dict(imports=["work"], setup="work:hold", setup_args=(megabytes,))
    with odfork.Zygote(**recipe) as zygote:
        print(f"  a child that does nothing: {zygote.call(work.idle_job) / 2**20:.2f} MB")
        for size in (1, 4, 16, 64):
            share = zygote.call(work.small_job, size) / (size << 20)
            print(f"  a job that writes {size} MB: {share:.2f} times that")
            if size == 16:
                kept = share
    verdicts.at_most("private memory of a job that writes 16 MB, times that", kept, 1.2)
