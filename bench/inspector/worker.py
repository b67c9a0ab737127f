"""A worker as `ctxb worker` runs it with the HTTP interface, with a short history for each owner.

Settings come over stdin as JSON, so that the server's password is in no list of processes. It
says on stdout when it is ready, then works until SIGTERM.
"""

import asyncio
import signal
import sys
from contextlib import AsyncExitStack

from bench.bus.load import OWNERS
from bench.bus.worker import HISTORY
from bench.conversation import conversation
from service.aio import reduce_garbage_collection, run
from service.app import connect_client, make_worker, open_builder, open_bus
from service.config.settings import Settings
from service.http.interface import open_http
from service.observe.logs import configure_logging
from service.worker.event_publisher import EventPublisher


async def _serve(settings: Settings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    port = settings.http.port
    if port is None:
        raise SystemExit("the settings name no http.port")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        bus = (await enter(open_bus(settings))).bus
        builder = await enter(open_builder(settings, events=EventPublisher(bus)))
        client = await enter(connect_client(settings, bus))
        served = await enter(open_http(port, bus, builder, client.exchange))
        rows = conversation(HISTORY)
        for owner in range(OWNERS):
            await builder.history.append(f"owner_{owner}", rows)
        reduce_garbage_collection()
        print("ready", flush=True)
        await make_worker(bus, builder, served.recent).run(stop)


if __name__ == "__main__":
    chosen = Settings.model_validate_json(sys.stdin.readline())
    configure_logging("critical")
    run(_serve(chosen))
