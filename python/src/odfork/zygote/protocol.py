"""Frames between a client and a template: docs/zygote.md, version 1.

A frame is one message of a SOCK_SEQPACKET socket: a header, then fields. Descriptors travel with
the frame. A frame larger than INLINE travels in a memory file, which is its first descriptor.
"""

import array
import os
import socket
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Iterator, List, Optional, Tuple

VERSION = 1
MAGIC = b"OZ"
INLINE = 64 << 10
LARGEST = 1 << 30
MOST_DESCRIPTORS = 250  # the kernel takes 253 (SCM_MAX_FD)

HEADER = struct.Struct("<2sBBII")  # magic, version, kind, request, flags
FIELD = struct.Struct("<HHI")  # tag, zero, length
IN_FILE = 1  # flag: the fields are in the first descriptor


class Kind(IntEnum):
    """What a frame says. The first group goes to the template, the second comes from it."""

    SPAWN = 1
    INFO = 2
    STOP = 3

    STARTED = 64
    EXITED = 65
    FAILED = 66
    STATE = 67
    READY = 68


class Tag(IntEnum):
    """What a field holds. Numbers are little-endian, texts are UTF-8 or file names' bytes."""

    CALL = 1  # pickle of (function, arguments, keywords)
    SCRIPT = 2  # path of a Python file
    MODULE = 3  # name of a module, run as with -m
    COMMAND = 4  # Python source, run as with -c
    TEMPLATE = 5  # pickle of a Recipe: the child is a template; its socket is an extra descriptor
    ARGUMENT = 6  # one for each of sys.argv[1:]
    ENVIRONMENT = 7  # NAME=value, one for each variable, or empty; present: replaces all
    DIRECTORY = 8
    TARGETS = 9  # u32 for each of the first descriptors: its number in the child; others are extra
    LIMIT = 10  # u32 resource, u64 soft, u64 hard
    MASK = 11  # u32 umask
    DEADLINE = 12  # u64 milliseconds from now until the child is killed
    DETACHED = 13  # the child outlives client and template
    GROUP = 14  # u32 process group to join; 0: one of its own
    SESSION = 15  # a session of its own
    PREPARATION = 16  # pickle of what multiprocessing prepares a child with
    RESULT = 17  # an extra descriptor takes the pickle of (True, result) or (False, exception)
    EXTRA = 18  # the called function gets the numbers of the extra descriptors as its last argument

    # A recipe in words, from a client that is not Python.
    IMPORT = 19  # one for each module
    SETUP = 20  # module:function
    PATH = 21  # one for each directory

    PROCESS = 64  # u32
    STATUS = 65  # u32 as wait(2) gives it
    USAGE = 66  # u64 user ns, u64 system ns, u64 largest resident bytes
    MESSAGE = 67
    THREADS = 68  # u32 threads of the template
    CHILDREN = 69  # u32
    FROZEN = 70  # u64 bytes
    REASON = 71  # why forks of the template are not cheap
    THREAD = 72  # name of a thread of the template, one for each but the first


@dataclass
class Frame:
    kind: int
    request: int = 0
    fields: List[Tuple[int, bytes]] = field(default_factory=list)
    descriptors: List[int] = field(default_factory=list)

    def add(self, tag: int, value: bytes = b"") -> "Frame":
        self.fields.append((int(tag), value))
        return self

    def number(self, tag: int, value: int, size: int = 4) -> "Frame":
        return self.add(tag, value.to_bytes(size, "little"))

    def get(self, tag: int) -> Optional[bytes]:
        return next((value for t, value in self.fields if t == tag), None)

    def all(self, tag: int) -> Iterator[bytes]:
        return (value for t, value in self.fields if t == tag)

    def int(self, tag: int, default: int = 0) -> int:
        value = self.get(tag)
        return default if value is None else int.from_bytes(value, "little")

    def deadline(self) -> Optional[float]:
        """Seconds until the child is killed."""
        if self.get(Tag.DEADLINE) is None:
            return None
        return min(self.int(Tag.DEADLINE), 1 << 63) / 1000

    def close(self) -> None:
        """Closes the descriptors that came with the frame."""
        while self.descriptors:
            os.close(self.descriptors.pop())


class ProtocolError(Exception):
    """The other side does not speak this protocol."""


class Incomplete(ProtocolError):
    """A request came without all of its descriptors: none was free here."""

    def __init__(self, request: int) -> None:
        super().__init__("no child could be made: Too many open files")
        self.request = request


def pack(frame: Frame) -> Tuple[bytes, Optional[int]]:
    """The frame's bytes, and a memory file with its fields when they are too large."""
    body = b"".join(FIELD.pack(tag, 0, len(value)) + value for tag, value in frame.fields)
    if len(body) <= INLINE:
        return HEADER.pack(MAGIC, VERSION, frame.kind, frame.request, 0) + body, None
    if len(body) > LARGEST:
        raise ProtocolError(f"a request of {len(body)} bytes is too large; the limit is 1 GB")
    fd = os.memfd_create("odfork-zygote")
    view = memoryview(body)
    while view:
        view = view[os.write(fd, view) :]
    return HEADER.pack(MAGIC, VERSION, frame.kind, frame.request, IN_FILE), fd


def send(sock: socket.socket, frame: Frame) -> None:
    """Sends a frame. BlockingIOError: no room, nothing was sent."""
    if len(frame.descriptors) > MOST_DESCRIPTORS:
        count = len(frame.descriptors)
        raise ProtocolError(f"{count} descriptors in a request; the limit is {MOST_DESCRIPTORS}")
    data, fd = pack(frame)
    try:
        send_packed(sock, data, ([] if fd is None else [fd]) + frame.descriptors)
    finally:
        if fd is not None:
            os.close(fd)


def send_packed(sock: socket.socket, data: bytes, descriptors: List[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    sock.sendmsg([data], rights if descriptors else [], socket.MSG_NOSIGNAL)


def receive(sock: socket.socket) -> Optional[Frame]:
    """The next frame; None when the other side has closed."""
    room = socket.CMSG_SPACE((MOST_DESCRIPTORS + 1) * 4)
    flags = socket.MSG_CMSG_CLOEXEC
    data, ancillary, got, _ = sock.recvmsg(HEADER.size + INLINE + 1, room, flags)
    descriptors = _descriptors(ancillary)
    try:
        if not data:
            return None
        if got & socket.MSG_CTRUNC and len(descriptors) <= MOST_DESCRIPTORS and _is_frame(data):
            raise Incomplete(HEADER.unpack_from(data)[3])
        if got & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ProtocolError("a frame was longer than the protocol allows")
        return unpack(data, descriptors)
    except BaseException:
        for fd in descriptors:
            os.close(fd)
        raise


def _is_frame(data: bytes) -> bool:
    return len(data) >= HEADER.size and data[:3] == MAGIC + bytes([VERSION])


def _descriptors(ancillary: List[Tuple[int, int, bytes]]) -> List[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def unpack(data: bytes, descriptors: List[int]) -> Frame:
    """Takes over the descriptors; on an error they are still the caller's."""
    if len(data) < HEADER.size:
        raise ProtocolError("a frame is shorter than its header")
    magic, version, kind, request, flags = HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise ProtocolError(f"version {version} of the protocol; this side speaks {VERSION}")
    body = data[HEADER.size :]
    if flags & IN_FILE:
        if not descriptors:
            raise ProtocolError("a frame in a file came without its file")
        body = _read_file(descriptors[0])
        os.close(descriptors.pop(0))
    frame = Frame(kind, request, descriptors=descriptors)
    at = 0
    while at < len(body):
        if len(body) - at < FIELD.size:
            raise ProtocolError("a field is cut off")
        tag, _, length = FIELD.unpack_from(body, at)
        at += FIELD.size
        if length > len(body) - at:
            raise ProtocolError("a field is longer than its frame")
        frame.fields.append((tag, bytes(body[at : at + length])))
        at += length
    return frame


def _read_file(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    if size > LARGEST:
        raise ProtocolError(f"a request of {size} bytes is too large; the limit is 1 GB")
    parts, at = [], 0
    while at < size:
        part = os.pread(fd, size - at, at)
        if not part:
            raise ProtocolError("a frame's file became shorter while it was read")
        parts.append(part)
        at += len(part)
    return b"".join(parts)
