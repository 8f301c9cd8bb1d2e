"""The pages that a template's child writes, so that the next one can have them before it is asked.

Children of one template write to nearly the same pages: reference counts of the interpreter and of
pytest. The first child notes which; a child that waits for its test or its request copies these,
while others run. That changes no content.

Noting what several children write was tried: hardly a page is left to copy in a test then, but the
template, with one processor for its fork and these copies, is slower than the tests.
"""

import array
import ctypes
import os
import re
import sys
from typing import Any, Iterator, List, Tuple

PAGE = os.sysconf("SC_PAGESIZE")
MADV_POPULATE_WRITE = 23
MOST = 1024  # ranges that one call takes (UIO_MAXIOV)
LARGE = 16 << 20  # bytes; pytest's own are about 4 MB
PART = 1 << 30  # bytes whose page map is read at once
SPARSE = 64 << 30  # a mapping of so much is a reservation
# The highest byte of an entry of the page map. 0x80: present; 0x20: of a file or of shared memory;
# 0x01: mapped by this process alone.
COPIED = re.compile(
    b"[" + b"".join(re.escape(bytes([b])) for b in range(256) if b & 0xA1 == 0x81) + b"]+"
)

Range = Tuple[int, int]  # address, length

_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_several: Any = getattr(_libc, "process_madvise", None)  # for oneself from Linux 6.13 on


def note(fd: int) -> None:
    """Writes the ranges that this process has copied into the file, once for all processes."""
    if _libc is None or os.fstat(fd).st_size:
        return
    ranges = list(copied())
    if len(ranges) > MOST or sum(length for _, length in ranges) > LARGE:
        ranges = [(0, 0)]  # what that one wrote, the next one need not write
    os.pwrite(fd, _packed(ranges), 0)


class Early:
    """Copies the pages that have been noted in the file."""

    def __init__(self, fd: int) -> None:
        self.fd, self.known = fd, False
        self.ranges: List[Range] = []
        self.packed = b""

    def learn(self) -> None:
        """In the template: its children have its mappings."""
        noted = b"" if self.known else os.pread(self.fd, 16 * MOST, 0)
        if not noted:
            return
        self.known, own, numbers = True, list(_writable()), array.array("Q", noted)
        self.ranges = [
            (begin, length)
            for begin, length in zip(numbers[::2], numbers[1::2])
            if any(first <= begin and begin + length <= end for first, end in own)
        ]
        self.packed = _packed(self.ranges)

    def copy(self) -> None:
        """In a child. What the kernel refuses is copied when it is needed, as ever."""
        if self.ranges:
            own = os.pidfd_open(os.getpid())
            _copy(own, self.ranges, self.packed)
            os.close(own)


def _packed(ranges: List[Range]) -> bytes:
    return array.array("Q", [number for one in ranges for number in one]).tobytes()


def _copy(own: int, ranges: List[Range], packed: bytes) -> None:
    if _several is not None:
        if _several(own, packed, ctypes.c_size_t(len(ranges)), MADV_POPULATE_WRITE, 0) >= 0:
            return
    for begin, length in ranges:
        if _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), MADV_POPULATE_WRITE):
            return


def copied() -> Iterator[Range]:
    """Private memory that this process alone maps."""
    with open("/proc/self/pagemap", "rb", buffering=0) as pages:
        for begin, end in _writable():
            for part in range(begin, end, PART):
                entries = min(PART, end - part) // PAGE
                highest = os.pread(pages.fileno(), entries * 8, part // PAGE * 8)[7::8]
                for found in COPIED.finditer(highest):
                    first, after = found.span()
                    yield part + first * PAGE, (after - first) * PAGE


def _writable() -> Iterator[Range]:
    """Begin and end of private mappings."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = [line.split(None, 2)[:2] for line in maps]
    for where, access in found:
        begin, end = (int(place, 16) for place in where.split("-"))
        if access == "rw-p" and end - begin < SPARSE:
            yield begin, end
