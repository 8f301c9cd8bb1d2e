"""The pages that a test's child copies, so that the next child can have them before it is needed.

Children of one template write to nearly the same pages: reference counts of pytest and of the
interpreter. One child notes which; a child that waits for its test copies these in one call, while
the test before it runs. That changes no content.
"""

import array
import ctypes
import os
import sys
from typing import Any, Iterator, List, Tuple

PAGE = os.sysconf("SC_PAGESIZE")
MADV_POPULATE_WRITE = 23
MOST = 1024  # ranges that one call takes (UIO_MAXIOV)
LARGE = 16 << 20  # bytes; pytest's own are about 4 MB
PART = 1 << 30  # bytes whose page map is read at once
SPARSE = 64 << 30  # a mapping of so much is a reservation
BLOCK = 4096  # bytes of the page map that are skipped at once when they are zeros
OWN = 1 << 63 | 1 << 56  # in the page map: present, and mapped by this process alone
OF_FILE = 1 << 61  # or of shared memory

_madvise: Any = None
if sys.platform == "linux":
    _madvise = getattr(ctypes.CDLL(None, use_errno=True), "process_madvise", None)


def note(fd: int) -> None:
    """Writes the ranges that this process has copied into the file, once for all processes."""
    if _madvise is not None and os.fstat(fd).st_size == 0:
        ranges = list(_ranges())
        if sum(length for _, length in ranges) > LARGE or len(ranges) > MOST:
            ranges = [(0, 0)]  # what that test wrote, the next one need not write
        os.pwrite(fd, array.array("Q", [n for one in ranges for n in one]).tobytes(), 0)


class Early:
    """Copies the pages that have been noted in the file."""

    def __init__(self, fd: int) -> None:
        self.fd, self.count, self.ranges = fd, 0, b""

    def learn(self) -> None:
        if not self.count:
            self.ranges = os.pread(self.fd, 16 * MOST, 0)
            self.count = len(self.ranges) // 16

    def copy(self) -> None:
        if self.count:
            own = os.pidfd_open(os.getpid())
            count = ctypes.c_size_t(self.count)
            arguments = own, self.ranges, count, MADV_POPULATE_WRITE, 0
            _madvise(*arguments)  # refused by older kernels: then they are copied when needed
            os.close(own)


def _ranges() -> Iterator[Tuple[int, int]]:
    """Address and length of private memory that this process alone maps."""
    with open("/proc/self/pagemap", "rb", buffering=0) as pages:
        for begin, end in _writable():
            for part in range(begin, end, PART):
                entries = min(PART, end - part) // PAGE
                yield from _own(part, os.pread(pages.fileno(), entries * 8, part // PAGE * 8))


def _writable() -> List[Tuple[int, int]]:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = [line.split(None, 2)[:2] for line in maps]
    places = [where.split("-") for where, access in found if access == "rw-p"]
    ranges = [(int(begin, 16), int(end, 16)) for begin, end in places]
    return [(begin, end) for begin, end in ranges if end - begin < SPARSE]


def _own(begin: int, data: bytes) -> Iterator[Tuple[int, int]]:
    first = length = 0
    for at in range(0, len(data), BLOCK):
        block = data[at : at + BLOCK]
        if block.count(0) == len(block):
            continue
        for place, entry in enumerate(array.array("Q", block)):
            if entry & (OWN | OF_FILE) != OWN:
                continue
            address = begin + (at // 8 + place) * PAGE
            if address == first + length:
                length += PAGE
            else:
                if length:
                    yield first, length
                first, length = address, PAGE
    if length:
        yield first, length
