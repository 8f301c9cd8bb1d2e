"""Ray with one template per node: tasks and actors run in fresh children of it.

    templates = odfork.ray.Templates(imports=["pandas"], setup="models:load")
    score = templates.remote(function)           # as ray.remote: score.remote(...) is an ObjectRef
    Counter = templates.actor(CounterClass)      # Counter.remote() has methods with .remote(...)

Each template belongs to a Ray actor of its node. Ray starts that actor, restarts it when it is
lost, elsewhere when its node is lost, and makes its unfinished calls again. A child is no worker
of Ray: it cannot use Ray's own functions.
"""

import asyncio
import itertools
import os
import socket
import struct
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .zygote import Child, Zygote, ZygoteError

LENGTH = struct.Struct("<Q")
SECONDS = 60  # until a node that has joined takes actors


class Lost(Exception):
    """An actor's process has ended, or its template was lost."""


class Templates:
    """One template on each node.

    recipe    imports, setup and the other arguments of odfork.Zygote
    slots     tasks at once on a node; default: the processors Ray counts there
    reserve   processors that Ray keeps for each template and its children. After the loss of a
              node its template starts where so many are free
    retries   how often Ray makes a call again whose node or template was lost; it makes several
              until it knows that a node is lost
    """

    def __init__(
        self,
        *,
        slots: Optional[int] = None,
        reserve: float = 0,
        retries: int = 20,
        **recipe: Any,
    ) -> None:
        recipe["imports"] = ["odfork.ray", *recipe.get("imports", ())]
        self._recipe, self._slots = recipe, slots
        self._reserve, self._retries = reserve, retries
        self._nodes: Dict[str, Any] = {}
        self._turn: Iterator[str] = iter(())
        self.refresh()

    def refresh(self) -> None:
        """One template on each node again: some may have joined or left.

        A template that Ray has started again on another node than its own is replaced.
        """
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        stay = {name: actor for name, actor in self._nodes.items() if name in alive}
        infos = ray.get([actor.info.remote() for actor in stay.values()])
        at_home = (name for name, info in zip(stay, infos) if info["node"] == name)
        self._nodes = {name: stay[name] for name in at_home}  # others finish what runs first
        until = time.monotonic() + SECONDS
        missing = {name: node for name, node in alive.items() if name not in self._nodes}
        while missing:
            made = {name: self._start(name, node) for name, node in missing.items()}
            answers = ray.get([actor.info.remote() for actor in made.values()])
            for name, answer in zip(made, answers):
                # Where Ray does not know a new node yet, it takes another one.
                if answer["node"] == name:
                    self._nodes[name] = made[name]
                    del missing[name]
                else:
                    ray.kill(made[name])
            if missing and time.monotonic() > until:
                raise Lost(f"Ray starts no actor on the nodes {sorted(missing)}")
        self._turn = itertools.cycle(list(self._nodes))

    def _start(self, name: str, node: Any) -> Any:
        slots = self._slots or max(1, int(node["Resources"].get("CPU", 1)))
        options = dict(
            num_cpus=self._reserve,
            max_restarts=-1,
            max_task_retries=self._retries,
            scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=True),
        )
        return ray.remote(_Node).options(**options).remote(self._recipe, slots)

    def _next(self) -> Any:
        return self._nodes[next(self._turn)]

    def remote(self, function: Callable[..., Any]) -> "Task":
        """The function as a task: its remote(...) runs in a child and gives an ObjectRef."""
        return Task(self, function)

    def actor(self, cls: type) -> "ActorClass":
        """The class as an actor: its remote(...) starts a child that holds the object."""
        return ActorClass(self, cls)

    def reload(self) -> None:
        """New templates from the same recipe, on every node; running children live on."""
        ray.get([actor.reload.remote() for actor in self._nodes.values()])

    def info(self) -> List[Dict[str, Any]]:
        """The state of each template, as Zygote.info(), with its node."""
        answers: List[Dict[str, Any]] = ray.get([a.info.remote() for a in self._nodes.values()])
        return answers

    def close(self) -> None:
        """Ends templates and children."""
        for actor in self._nodes.values():
            ray.kill(actor)
        self._nodes.clear()

    def __enter__(self) -> "Templates":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Task:
    def __init__(self, templates: Templates, function: Callable[..., Any]) -> None:
        self._templates = templates
        self._function = ray.put(cloudpickle.dumps(function))

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """An ObjectRef of the result. Arguments may be ObjectRefs."""
        return self._templates._next().run.remote(self._function, *args, **kwargs)


class ActorClass:
    def __init__(self, templates: Templates, cls: type) -> None:
        self._templates, self._cls = templates, cls

    def remote(self, *args: Any, **kwargs: Any) -> "Actor":
        node = self._templates._next()
        number = ray.get(node.hold.remote(cloudpickle.dumps(self._cls), *args, **kwargs))
        return Actor(node, number)


class Actor:
    """The handle of an object in a child. Its methods have remote(...), as with Ray."""

    def __init__(self, node: Any, number: Tuple[int, int]) -> None:
        self._node, self._number = node, number

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Method(self, name)

    def __reduce__(self) -> Any:
        return Actor, (self._node, self._number)

    def kill(self) -> None:
        """Ends the child."""
        ray.get(self._node.drop.remote(self._number))


class Method:
    def __init__(self, actor: Actor, name: str) -> None:
        self._actor, self._name = actor, name

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        actor = self._actor
        return actor._node.ask.remote(actor._number, self._name, *args, **kwargs)


class _Node:
    """Ray's actor on a node: it owns the template."""

    def __init__(self, recipe: Dict[str, Any], slots: int) -> None:
        self._zygote = Zygote(**recipe)
        self._slots = asyncio.Semaphore(slots)
        self._held: Dict[Tuple[int, int], Held] = {}
        self._numbers = itertools.count(1)

    async def run(self, function: bytes, *args: Any, **kwargs: Any) -> Any:
        async with self._slots:
            data = cloudpickle.dumps((args, kwargs))
            try:
                return cloudpickle.loads(await self._zygote.call_async(_run, function, data))
            except ZygoteError:
                self._end_with_the_template()
                raise

    def _end_with_the_template(self) -> None:
        """Ray then starts both again, and makes unfinished calls again."""
        if self._zygote.lost:
            os._exit(1)

    async def hold(self, cls: bytes, *args: Any, **kwargs: Any) -> Tuple[int, int]:
        held = Held(self._zygote)
        try:
            await held.ask(cls, cloudpickle.dumps((args, kwargs)))
        except BaseException:
            held.close()
            raise
        number = (os.getpid(), next(self._numbers))  # another process does not know it
        self._held[number] = held
        return number

    async def ask(self, number: Tuple[int, int], name: str, *args: Any, **kwargs: Any) -> Any:
        held = self._held.get(number)
        if held is None:
            raise Lost("the actor's template was lost")
        return await held.ask(name.encode(), cloudpickle.dumps((args, kwargs)))

    async def drop(self, number: Tuple[int, int]) -> None:
        held = self._held.pop(number, None)
        if held is not None:
            held.close()

    async def reload(self) -> None:
        self._zygote.reload()

    async def info(self) -> Dict[str, Any]:
        fallback = self._zygote.fallback
        node = ray.get_runtime_context().get_node_id()
        return {**self._zygote.info(), "node": node, "fallback": fallback}


def _run(function: bytes, data: bytes) -> bytes:
    """In a child: the call of a task."""
    args, kwargs = cloudpickle.loads(data)
    return bytes(cloudpickle.dumps(cloudpickle.loads(function)(*args, **kwargs)))


class Held:
    """A child that holds an object, as the node's actor sees it. One call at a time."""

    def __init__(self, zygote: Zygote) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._child: Child = zygote.start_with(_hold, b"", [theirs.fileno()])
        ours.setblocking(False)
        self._sock = ours
        self._lock = asyncio.Lock()

    async def ask(self, name: bytes, arguments: bytes) -> Any:
        loop = asyncio.get_running_loop()
        async with self._lock:
            try:
                await loop.sock_sendall(self._sock, _packed(name) + _packed(arguments))
                data = await self._answer(loop)
            except (OSError, EOFError):
                status = await self._child.wait_async()
                raise Lost(f"the actor's process ended with status {status}") from None
        done, value = cloudpickle.loads(data)
        if done:
            return value
        raise value

    async def _answer(self, loop: asyncio.AbstractEventLoop) -> bytes:
        data = b""
        while len(data) < LENGTH.size or len(data) < LENGTH.size + LENGTH.unpack_from(data)[0]:
            part = await loop.sock_recv(self._sock, 1 << 20)
            if not part:
                raise EOFError
            data += part
        return data[LENGTH.size :]

    def close(self) -> None:
        self._sock.close()
        self._child.kill()


def _packed(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def _hold(_: bytes, fds: List[int]) -> None:
    """In a child: makes the object with the first message, then answers until the end."""
    with socket.socket(fileno=fds[0]) as sock, sock.makefile("rwb") as stream:
        held: Any = None
        while True:
            head = stream.read(LENGTH.size)
            if not head:
                return
            name = stream.read(LENGTH.unpack(head)[0])
            arguments = stream.read(LENGTH.unpack(stream.read(LENGTH.size))[0])
            try:
                args, kwargs = cloudpickle.loads(arguments)
                if held is None:
                    held, value = cloudpickle.loads(name)(*args, **kwargs), None
                else:
                    value = getattr(held, name.decode())(*args, **kwargs)
                answer = cloudpickle.dumps((True, value))
            except Exception as error:
                answer = cloudpickle.dumps((False, error))
            stream.write(_packed(answer))
            stream.flush()
