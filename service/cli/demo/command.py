"""``ctxb demo``: run the tour, keep the inspector open on request, and print commands to try."""

import asyncio
import shlex
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from service.cli.demo.stage import HISTORY, OWNER, TOOLS, WorkerProcess, open_stage
from service.cli.demo.tour import print_heading, send_comparisons, tour
from service.cli.exits import run_until_stopped
from service.cli.output import print_text
from service.cli.worker import stop_on_signals
from service.observe.logs import configure_logging

InMemory = Annotated[
    bool,
    typer.Option("--in-memory", help="Use the bus in memory, the default if no server is found."),
]
Serve = Annotated[
    bool, typer.Option("--serve", help="Keep the inspector running after the tour, until Ctrl-C.")
]


def demo(ctx: typer.Context, in_memory: InMemory = False, serve: Serve = False) -> None:
    """Take a tour: start a bus and a worker, send requests, show the contexts.

    ctxb demo
    ctxb demo | less
    ctxb demo --serve

    The demo takes a few seconds, and needs no key and no network. It ignores your
    settings and leaves nothing behind.

    With --serve, the worker keeps running, and its inspector shows the builds in
    a browser, texts included.
    """
    # the tour shows the requests that fail, so the worker's warnings about them are left out
    configure_logging(ctx.obj.log_level or "error", ctx.obj.log_format or "auto")
    run_until_stopped(run_demo(in_memory=in_memory, serve=serve))


async def run_demo(*, in_memory: bool, serve: bool) -> None:
    """Run the tour, and with ``serve`` keep the inspector open until SIGTERM or Ctrl-C.

    Raises:
        CommandError: The service does something else than the tour says.
    """
    with TemporaryDirectory(prefix="ctxb-demo-") as folder:
        async with open_stage(Path(folder), in_memory=in_memory, serve=serve) as stage:
            limited = await tour(stage)
            if stage.inspector is not None:
                await send_comparisons(stage)
                print_inspector(stage.inspector, stage.bus.url, limited)
                await wait_until_stopped(stage.worker)
    print_heading("That was all")
    print_text("The worker has finished and exited cleanly; nothing is left behind.")
    print_next_steps(served=serve)


async def wait_until_stopped(worker: WorkerProcess | None) -> None:
    """Wait for SIGTERM or Ctrl-C; raises `CommandError` if the worker ends first."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    waiting: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait())]
    if worker is not None:
        waiting.append(asyncio.create_task(worker.process.wait()))
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    if worker is not None and not stop.is_set():
        worker.check_running()


def print_inspector(address: str, bus_url: str | None, build_id: str) -> None:
    """Print the inspector's address, with a build to begin with, and how to send it another."""
    if bus_url is not None:
        send = f"CTXB_BUS__URL={bus_url} {program()} send --owner {OWNER} --input 'And now?'"
    else:
        body = f'{{"owner_key": "{OWNER}", "content": {{"current_input": "And now?"}}}}'
        send = f"curl -s {address}/v1/build -H 'Content-Type: application/json' -d '{body}'"
    print_heading("The inspector")
    print_text("It shows what a context left out, and why, with the text. Open in a browser:")
    typer.echo(f"  {address}/#/builds/{build_id}/ledger?owner={OWNER}\n")
    print_text("To see another build arrive, run elsewhere:")
    typer.echo(f"  {send}\n")
    print_text("Ctrl-C ends it.")


def print_next_steps(*, served: bool) -> None:
    """Print commands that work in this folder, with this installation.

    The one that opens the inspector is last, and left out if it has been ``served`` just now.
    """
    ctxb, history = program(), shlex.quote(_short_path(HISTORY))
    tools = shlex.quote(f'["{_short_path(TOOLS)}"]')
    store = "CTXB_STORE__URL=sqlite:///ctxb.db"
    typer.echo()
    print_text("To try next:")
    for command in (
        f"{ctxb} build --owner me --input 'When is the ferry?' --history {history} --explain",
        f"{store} {ctxb} history import {history} --owner me",
        f"{store} {ctxb} build --owner me --input 'Who feeds the cat?' --max-tokens 4000",
        f"CTXB_TOOLS__PATHS={tools} {ctxb} tools ls",
        f"{ctxb} worker    # and then, elsewhere, the commands that it prints",
        *([] if served else [f"{ctxb} demo --serve    # opens the inspector: see it in a browser"]),
    ):
        typer.echo(f"  {command}")


def program() -> str:
    """Return the command that runs this program, as a shell reads it."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{shlex.quote(_short_path(Path(sys.executable)))} -m service.cli"
    found = shutil.which(called.name)
    if found is not None and Path(found).resolve() == called.resolve():
        return called.name
    return shlex.quote(_short_path(called))


def _short_path(path: Path) -> str:
    """Return a path relative to the working directory if it is below it, else absolute."""
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)
