"""After the tour: say where the inspector is, and keep it open until told to end."""

import asyncio
from urllib.parse import quote

import typer

from service.cli.demo.next_steps import program
from service.cli.demo.stage import WorkerProcess
from service.cli.serving import stop_on_signals
from service.cli.tables import say


def print_inspector(address: str, owner: str, bus_url: str | None) -> None:
    """Print the inspector's address with an owner in it, and how to send it another build."""
    say("It shows the builds of this demo, with what was said in them. Open in a browser:")
    typer.echo(f"  {address}/#/builds?owner={quote(owner, safe='')}")
    typer.echo()
    say("A build that comes while you look, from elsewhere:")
    typer.echo(f"  {_another_build(address, owner, bus_url)}")
    typer.echo()
    say("Ctrl-C ends it.")


def _another_build(address: str, owner: str, bus_url: str | None) -> str:
    if bus_url is not None:
        return f"CTXB_BUS__URL={bus_url} {program()} send --owner {owner} --input 'And now?'"
    body = f'{{"owner_key": "{owner}", "content": {{"current_input": "And now?"}}}}'
    return f"curl -s {address}/v1/build -H 'Content-Type: application/json' -d '{body}'"


async def wait_until_told(worker: WorkerProcess | None) -> None:
    """Wait for SIGTERM or Ctrl-C; raises `DemoError` where the worker ends before."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    if worker is None:
        await stop.wait()
        return
    waiting = {asyncio.ensure_future(stop.wait()), asyncio.ensure_future(worker.process.wait())}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
    if not stop.is_set():
        worker.check_running()
