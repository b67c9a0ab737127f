"""Run a worker as a process: its bus, its signals, its exit code."""

import asyncio
import signal
from contextlib import suppress

import typer

from service.aio import settle_memory
from service.app import ConnectedBus, open_bus, open_observed_worker
from service.cli.exits import Exit
from service.config.settings import Settings
from service.observe.logs import mask_urls


async def serve(settings: Settings) -> Exit:
    """Work until a signal asks to stop; raises as `open_bus` and `open_observed_worker` do."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    async with open_bus(settings) as connected:
        _introduce(connected, configured=settings.bus.url is not None)
        async with open_observed_worker(settings, connected.bus) as worker:
            settle_memory()
            drained = await worker.run(stop)
    return Exit.OK if drained else Exit.STOPPED


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set an event at SIGTERM and at the first Ctrl-C; a second one interrupts."""
    loop = asyncio.get_running_loop()

    def ask() -> None:
        stop.set()
        # whoever presses Ctrl-C again doesn't want to wait
        loop.remove_signal_handler(signal.SIGINT)

    with suppress(NotImplementedError):  # Windows knows only Ctrl-C, which interrupts
        loop.add_signal_handler(signal.SIGTERM, ask)
        loop.add_signal_handler(signal.SIGINT, ask)


def _introduce(connected: ConnectedBus, *, configured: bool) -> None:
    """Say which bus it is; a person needs the password of a server that was started here."""
    if connected.url is None:
        typer.echo("bus: in the memory of this process, which no other one reaches", err=True)
    elif configured:
        typer.echo(f"bus: {mask_urls(connected.url)}", err=True)
    else:
        url = connected.url
        typer.echo(f"bus: a server of its own ({connected.origin}); to reach it:", err=True)
        typer.echo(f"  redis-cli -u {url}", err=True)
        typer.echo(f"  CTXB_BUS__URL={url} ctxb send --owner me --input Hello", err=True)
