"""An agent that does nothing but send: pico frames as fast or as slowly as its message asks.

    python -m bench.pico_agent          prints `listening http://127.0.0.1:PORT`; SIGTERM ends it

The last line of a message is an `Order` as JSON. Each frame adds one `STAMP_LENGTH` piece to its message: the
monotonic time, in nanoseconds, at which it was sent. All processes of a machine share that clock, so whoever
reads the frame knows its age.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from dataclasses import dataclass

from aiohttp import WSMsgType, web

STAMP_LENGTH = 21  # 20 digits and a space
FRAMES_PER_MESSAGE = 100  # an update carries all of its message: an answer of usual length
TYPING = '{"type":"typing.start","session_id":"s","timestamp":0}'


@dataclass(frozen=True)
class Order:
    """What to send: so many frames, about `interval` seconds apart (0: as fast as they are taken). Then the
    socket is closed, or with `hold` kept open in silence until the other side closes it."""

    frames: int = 1
    interval: float = 0.0
    hold: bool = False


async def serve_socket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(max_msg_size=1024 * 1024, compress=False)
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            content = json.loads(message.data)["payload"]["content"]
            order = Order(**json.loads(content.rpartition("\n")[2]))
            try:
                await play(socket, order)
            except ConnectionError:  # the other side has left
                break
            if not order.hold:
                break
    await socket.close()
    return socket


async def play(socket: web.WebSocketResponse, order: Order) -> None:
    await socket.send_str(TYPING)
    text = ""
    for number in range(order.frames):
        place = number % FRAMES_PER_MESSAGE
        text = (text if place else "") + f"{time.monotonic_ns():020d} "
        usage = ',"context_usage":{"used_tokens":1}' if number == order.frames - 1 and not order.hold else ""
        await socket.send_str(
            f'{{"type":"message.{"update" if place else "create"}","session_id":"s","timestamp":0,"payload":'
            f'{{"message_id":"m{number // FRAMES_PER_MESSAGE}","content":"{text}"{usage}}}}}'
        )
        if order.interval and number < order.frames - 1:
            # Streams that keep step with each other would come in bursts that no real ones make.
            await asyncio.sleep(order.interval * random.uniform(0.5, 1.5))


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = web.Application()
    app.router.add_get("/{member}/pico/ws", serve_socket)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(f"listening http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await stop.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
