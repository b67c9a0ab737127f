"""A bench in its own process, with its output and a time limit."""

import asyncio
import json
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bench.scoreboard.benches import Bench
from bench.scoreboard.machine import ROOT, tree
from bench.scoreboard.outcomes import Outcome
from service.adapters.embedded.binaries import find_server

#: Seconds that a bench has to stop its servers, after the signal to end.
GRACE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What there is to run benches with."""

    python: str
    #: The Python that has the peers, and the folder of data, if they are here.
    peers: str | None = None
    data: Path | None = None
    quick: bool = False


def missing(bench: Bench, place: Place) -> str:
    """Return why a bench can't run here; empty if it can."""
    if bench.data is not None:
        if place.data is None:
            return "no folder of data was named"
        for name in bench.data:
            if not (place.data / f"{name}.jsonl.gz").is_file():
                return f"the folder of data has no {name}"
    for module in (bench.module, *bench.modules):
        if find_spec(module) is None:
            return f"{module} is not here"
    return "no server to start is here" if bench.server and find_server() is None else ""


async def outcome(bench: Bench, place: Place) -> Outcome:
    """Run a bench, if it can run here, and return what became of it."""
    if reason := missing(bench, place):
        return Outcome(state="skipped", reason=reason)
    load, began, clock = os.getloadavg()[0], datetime.now(UTC), time.monotonic()
    figures, reason = await _ran(command(bench, place), bench.minutes * 60)
    return Outcome(
        state="failed" if reason else "measured",
        reason=reason,
        figures=figures,
        began=f"{began:%Y-%m-%d %H:%M}",
        tree=tree(),
        seconds=time.monotonic() - clock,
        load=round(load, 2),
    )


def command(bench: Bench, place: Place) -> list[str]:
    """Return what is run."""
    python = place.peers if bench.peers and place.peers else place.python
    data = [] if bench.data is None else ["--data", str(place.data)]
    return [python, "-m", bench.module, *data, *bench.arguments(quick=place.quick)]


async def _ran(words: list[str], seconds: float) -> tuple[dict[str, Any], str]:
    """Return the figures that a command prints, and why it failed; empty if it did not."""
    process = await asyncio.create_subprocess_exec(
        *words, cwd=ROOT, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    try:
        async with asyncio.timeout(seconds):
            printed, reported = await process.communicate()
    except TimeoutError:
        return {}, f"was not done within {seconds / 60:g} minutes"
    finally:
        await _ended(process)
    last = "".join(reported.decode(errors="replace").strip().splitlines()[-1:])
    try:
        figures = json.loads(printed)
    except ValueError:
        return {}, last or "it printed no figures"
    return figures, (last or f"exit code {process.returncode}") if process.returncode else ""


async def _ended(process: Process) -> None:
    """Have a process that still runs stop what it has started, then end it with all of that."""
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            await process.communicate()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
