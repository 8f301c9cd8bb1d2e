"""What templates hold and children do in the measurements."""

import os
import random
import time

held = []


def hold(megabytes):
    """Memory of random content, so that no page is like another."""
    part = os.urandom(1 << 20)
    for number in range(megabytes):
        held.append(bytearray(part))
        held[-1][:8] = number.to_bytes(8, "little")


def hold_objects(count):
    """Python objects whose reference counts a reader writes."""
    chance = random.Random(3)
    held.append([{"key": chance.random(), "text": str(number)} for number in range(count)])


def write_time(fd):
    os.write(fd, time.monotonic_ns().to_bytes(8, "little"))


def private():
    """Bytes of this process that no other process shares."""
    total = 0
    with open("/proc/self/smaps_rollup", encoding="ascii") as rollup:
        for line in rollup:
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                total += int(line.split()[1]) << 10
    return total


def proportional():
    """Bytes of this process, shared pages by their share (PSS)."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as rollup:
        return next(int(line.split()[1]) << 10 for line in rollup if line.startswith("Pss:"))


def small_job(megabytes):
    """Reads some of the template's memory, writes so much of its own; private bytes then."""
    read = sum(part[8] for part in held[:64])
    own = bytearray(megabytes << 20)
    for at in range(0, len(own), 4096):
        own[at] = read & 255 or 1
    return private()


def idle_job():
    return private()
