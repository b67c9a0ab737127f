"""``ctxb worker``: run a worker as a process: its options, its bus, its signals, its exit code."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import structlog
import typer

from service.aio import reduce_garbage_collection, run
from service.app import ConnectedBus, check_settings, open_bus, open_observed_worker
from service.cli.bus_checks import count_listening
from service.cli.exits import Exit
from service.cli.start import has_persistent_store, start
from service.config.presets import DESCRIPTIONS, Preset, is_chosen
from service.config.settings import Settings
from service.connect import SERVERS
from service.observe.logs import mask_urls

log = structlog.get_logger(__name__)

Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Contexts built at the same time.", show_default=False)
]
Consumer = Annotated[
    str | None, typer.Option(metavar="NAME", help="The worker's name in the consumer group.")
]
ShutdownTimeout = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="Time to finish requests after SIGTERM."),
]
HeartbeatFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file that the worker touches while its loop runs."),
]
NoRecorder = Annotated[bool, typer.Option("--no-recorder", help="Write no history.")]


def worker(
    ctx: typer.Context,
    concurrency: Concurrency = None,
    consumer: Consumer = None,
    shutdown_timeout: ShutdownTimeout = None,
    heartbeat_file: HeartbeatFile = None,
    no_recorder: NoRecorder = False,
) -> None:
    """Answer the requests of a bus, until SIGTERM or Ctrl-C.

    ctxb worker
    CTXB_BUS__URL=redis://localhost:6379/0 ctxb worker --concurrency 32

    If no bus is configured, the worker starts a Redis or Valkey server of its
    own and prints its address. A stopped worker finishes the requests that it
    has, and exits with 0. If --shutdown-timeout is too short for that, it exits
    with 143.
    """
    settings = start(
        ctx.obj,
        level="info",
        worker={
            "concurrency": concurrency,
            "consumer": consumer,
            "shutdown_timeout_seconds": shutdown_timeout,
            "heartbeat_file": heartbeat_file,
        },
        recorder={"enabled": False if no_recorder else None},
    )
    raise typer.Exit(run(serve(settings)))


async def serve(settings: Settings) -> Exit:
    """Run a worker until a signal; raises as `open_bus` and `open_observed_worker` do."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    check_settings(settings)
    if not is_chosen(settings.origins):
        _print_preset(settings.preset)
    async with open_bus(settings, shared=True) as connected:
        _print_bus(connected, configured=settings.bus.url is not None)
        if not has_persistent_store(settings) and (others := await count_listening(settings)):
            reason = "each worker has a history of its own: set the same store.url for all"
            log.warning("store.not_shared", others=others, reason=reason)
        async with open_observed_worker(settings, connected.bus) as opened:
            reduce_garbage_collection()
            drained = await opened.run(stop)
    return Exit.OK if drained else Exit.STOPPED


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set an event at SIGTERM and at the first Ctrl-C; a second Ctrl-C interrupts."""
    loop = asyncio.get_running_loop()

    def set_stop() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    with suppress(NotImplementedError):  # Windows knows only Ctrl-C, which interrupts
        loop.add_signal_handler(signal.SIGTERM, set_stop)
        loop.add_signal_handler(signal.SIGINT, set_stop)


def _print_preset(preset: Preset) -> None:
    """Print which preset is in effect, and what the other one does."""
    (other,) = DESCRIPTIONS.keys() - {preset}
    typer.echo(
        f"preset: {preset} ({DESCRIPTIONS[preset]}); CTXB_PRESET={other} for {DESCRIPTIONS[other]}",
        err=True,
    )


def _print_bus(connected: ConnectedBus, *, configured: bool) -> None:
    """Print which bus it is, with its password only if this process started the server."""
    if connected.url is None:
        typer.echo("bus: in the memory of this process, out of reach of others", err=True)
        if not configured:
            typer.echo(f"  to send requests to it, set CTXB_BUS__URL; or {SERVERS}", err=True)
    elif configured:
        typer.echo(f"bus: {mask_urls(connected.url)}", err=True)
    elif connected.joined:
        where = f"another worker ({connected.address}), which ends with that worker"
        typer.echo(f"bus: the server of {where}", err=True)
    else:
        url = connected.url
        typer.echo(f"bus: a server of its own ({connected.origin}); to reach it:", err=True)
        typer.echo(f"  redis-cli -u {url}", err=True)
        variable = "" if connected.address else f"CTXB_BUS__URL={url} "
        typer.echo(f"  {variable}ctxb send --owner me --input Hello", err=True)
