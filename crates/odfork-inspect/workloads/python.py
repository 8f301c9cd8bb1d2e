"""A table of records as a Python program holds it: built, read, changed in part.

Each phase begins with a mark (SIGURG to ourselves): ignored by a process that nobody measures.
Usage: python.py RECORDS
"""

import gc
import os
import signal
import sys


def mark():
    os.kill(os.getpid(), signal.SIGURG)


def load(count):
    return {
        f"key-{number:07d}": {
            "number": number,
            "name": f"name {number % 977}",
            "tags": [number % 7, number % 11],
        }
        for number in range(count)
    }


def read(table):
    """Changes nothing that the program can see: what is written are counts of references."""
    return sum(record["number"] for record in table.values() if 3 in record["tags"])


def update(table):
    """Every tenth record gets a new value and a longer list; an index by tag is built."""
    index = {}
    for position, (key, record) in enumerate(table.items()):
        if position % 10 == 0:
            record["number"] = position * 1000
            record["tags"].append(position)
        if position % 20 == 0:
            index.setdefault(record["tags"][0], []).append(key)
    gc.collect()
    return index


def main():
    count = int(sys.argv[1])
    mark()
    table = load(count)
    mark()
    total = read(table)
    mark()
    index = update(table)
    mark()
    print(total, len(index))


main()
