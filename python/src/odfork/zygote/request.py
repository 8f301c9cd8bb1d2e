"""A request for a child, from the arguments of Zygote.start()."""

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from typing import IO, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .protocol import Frame, Kind, Tag

Stream = Union[None, int, IO[Any]]


@dataclass
class Options:
    """Where a child runs and with what; the names are subprocess.Popen's where it has them."""

    argv: Sequence[str] = ()
    stdin: Stream = None
    stdout: Stream = None
    stderr: Stream = None
    pass_fds: Sequence[int] = ()
    cwd: Optional[Union[str, "os.PathLike[str]"]] = None
    env: Optional[Mapping[str, str]] = None
    limits: Mapping[int, Tuple[int, int]] = field(default_factory=dict)
    umask: int = -1
    deadline: Optional[float] = None
    detached: bool = False
    start_new_session: bool = False
    process_group: Optional[int] = None
    text: bool = False


class Request:
    """The frame, and the client's ends of the child's pipes."""

    def __init__(self, options: Options) -> None:
        self.frame = Frame(Kind.SPAWN)
        self.text = options.text
        self.pipes: Dict[str, IO[Any]] = {}
        self._ours: List[int] = []  # descriptors to close once the frame is sent
        self._targets: List[int] = []
        try:
            self._streams(options)
            for fd in options.pass_fds:
                self._pass(fd, fd)
            self._surroundings(options)
        except BaseException:
            self.abandon()
            raise

    def _streams(self, options: Options) -> None:
        given = (options.stdin, options.stdout, options.stderr)
        for number, (name, stream) in enumerate(zip(("stdin", "stdout", "stderr"), given)):
            if stream == subprocess.PIPE:
                self._pipe(name, number)
            elif stream == subprocess.DEVNULL:
                fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                self._ours.append(fd)
                self._pass(fd, number)
            elif stream == subprocess.STDOUT:
                if number != 2:
                    raise ValueError("only stderr can go where stdout goes")
                out = dict(zip(self._targets, self.frame.descriptors)).get(1, 1)
                self._pass(out, 2)
            elif stream is not None:
                self._pass(stream if isinstance(stream, int) else stream.fileno(), number)

    def _pipe(self, name: str, number: int) -> None:
        read, write = os.pipe()
        theirs, ours = (read, write) if number == 0 else (write, read)
        self._ours.append(theirs)
        mode = ("w" if number == 0 else "r") + ("" if self.text else "b")
        self.pipes[name] = os.fdopen(ours, mode)
        self._pass(theirs, number)

    def _pass(self, fd: int, target: int) -> None:
        self.frame.descriptors.append(fd)
        self._targets.append(target)

    def _surroundings(self, options: Options) -> None:
        frame = self.frame
        for argument in options.argv:
            frame.add(Tag.ARGUMENT, os.fsencode(argument))
        if options.cwd is not None:
            frame.add(Tag.DIRECTORY, os.fsencode(options.cwd))
        if options.env is not None:
            frame.add(Tag.ENVIRONMENT)
        for name, value in (options.env or {}).items():
            frame.add(Tag.ENVIRONMENT, os.fsencode(f"{name}={value}"))
        for which, (soft, hard) in options.limits.items():
            numbers = (n % (1 << 64) for n in (soft, hard))
            packed = b"".join(n.to_bytes(8, "little") for n in numbers)
            frame.add(Tag.LIMIT, which.to_bytes(4, "little") + packed)
        if options.umask >= 0:
            frame.number(Tag.MASK, options.umask)
        if options.deadline is not None:
            frame.number(Tag.DEADLINE, max(0, int(options.deadline * 1000)), 8)
        if options.detached:
            frame.add(Tag.DETACHED)
        if options.start_new_session:
            frame.add(Tag.SESSION)
        else:
            group = os.getpgid(0) if options.process_group is None else options.process_group
            frame.number(Tag.GROUP, group)

    def extra(self, fd: int) -> None:
        """A descriptor without a number of its own in the child."""
        self.frame.descriptors.append(fd)
        self._ours.append(fd)

    def seal(self) -> Frame:
        """The frame, ready to be sent."""
        packed = b"".join(target.to_bytes(4, "little") for target in self._targets)
        return self.frame.add(Tag.TARGETS, packed) if packed else self.frame

    def sent(self) -> None:
        """The child has the descriptors: ours can go."""
        while self._ours:
            os.close(self._ours.pop())

    def abandon(self) -> None:
        self.sent()
        for pipe in self.pipes.values():
            pipe.close()


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    return pickle.dumps((function, tuple(args), dict(kwargs)))


def preparation(function: Any, always: bool = False) -> Optional[Dict[str, Any]]:
    """What makes the main module known elsewhere, when the function is from it."""
    if not always and getattr(function, "__module__", "") != "__main__":
        return None
    from multiprocessing import spawn

    data = spawn.get_preparation_data("odfork")
    kept = ("init_main_from_path", "init_main_from_name")
    return {key: data[key] for key in kept if key in data}


def default_path() -> List[str]:
    """The template finds modules where this process finds them."""
    return [entry for entry in sys.path if entry] + [os.getcwd()]
