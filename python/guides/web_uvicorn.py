"""uvicorn workers that are children of a zygote and share one socket.

    python web_uvicorn.py

The template imports the application once. Each worker is a child of it that serves the same
socket; a worker that ends is made again in milliseconds.
"""

import asyncio
import json
import os
import signal
import socket

import demo
import uvicorn

import odfork

MODEL = [number * number for number in range(200_000)]  # what every worker needs


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = json.dumps({"process": os.getpid(), "sum": MODEL[-1]}).encode()
    head = {"type": "http.response.start", "status": 200, "headers": []}
    await send(head)
    await send({"type": "http.response.body", "body": body})


def serve(fd):
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    server.run(sockets=[socket.socket(fileno=fd)])


async def keep(zygote, sock, stop):
    """One worker, made again when it ends."""
    import web_uvicorn

    while not stop.is_set():
        worker = zygote.start(web_uvicorn.serve, (sock.fileno(),), pass_fds=[sock.fileno()])
        ended = asyncio.ensure_future(worker.wait_async())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        worker.terminate()
        await ended
        stopped.cancel()


async def run(sock, workers, demonstration):
    stop = asyncio.Event()
    with odfork.Zygote(imports=["web_uvicorn"], path=[demo.HERE]) as zygote:
        kept = [asyncio.ensure_future(keep(zygote, sock, stop)) for _ in range(workers)]
        await asyncio.to_thread(demonstration)
        stop.set()
        await asyncio.gather(*kept)


def main():
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(128)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}/"

    def demonstration():
        first = {one["process"] for one in demo.ask_until(url, 2)}
        os.kill(min(first), signal.SIGKILL)
        again = demo.until(lambda: new(first), "a worker in place of the killed one")
        print(f"workers {sorted(first)}; {min(first)} was killed, {sorted(again)} came")

    def new(first):
        return {one["process"] for one in demo.ask_until(url, 2)} - first

    with sock:
        asyncio.run(run(sock, 2, demonstration))


if __name__ == "__main__":
    main()
