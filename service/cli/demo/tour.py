"""The tour: one request after the other, and what comes back."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Final, Literal

from service.cli.build_output import (
    print_context,
    print_decisions,
    print_outline,
    print_summary,
    print_tokens,
)
from service.cli.demo.stage import OWNER, REQUESTS, Stage
from service.cli.exits import CommandError
from service.cli.output import console, print_text
from service.wire.response import BuildResponse, BuildSuccess
from service.worker.client import NoWorkerError

#: Seconds for the worker to start, and for a row to be recorded.
WAIT_SECONDS: Final = 30.0
#: Seconds between two attempts.
RETRY_SECONDS: Final = 0.05

#: Rows that are hidden by hand: the plan for a storm.
HIDDEN: Final = ("m29", "m30", "m31", "m32")


async def tour(stage: Stage) -> str:
    """Show what the service does; return the id of a build that leaves messages out.

    Raises `CommandError` if it does something else.
    """
    stored = (await stage.history.recent(OWNER)).total
    print_text(f"A history of {stored} messages is stored: Ines and Tomas plan a surprise.")
    if stage.worker is None:
        where = "in memory, with the worker in this process"
    else:
        where = f"{stage.bus.origin}; worker: process {stage.worker.process.pid}"
    print_text(f"Bus: {where}.")

    print_heading("1. A question, by PUBLISH on context.build.request")
    answered = _context(await _send(stage, REQUESTS["question"], "channel"))
    print_context(answered, lines=6)
    print_summary(answered)
    await _record_answer(stage)
    first = await _send_run(stage)
    limited = await _limit_history(stage)
    print_heading("4. A window too small for what has to be sent")
    _print_error(await _send(stage, REQUESTS["impossible"], "stream"))
    print_heading("5. A request with a mistake")
    _print_error(await _send(stage, REQUESTS["malformed"], "channel"))
    print_heading("6. The second request once more, as after a lost answer")
    again = await _send(stage, REQUESTS["run"], "stream")
    if again.id != first.id:
        raise CommandError("the request was built again")
    print_text(f"The same response, not built again: {again.id}")
    return limited


async def _send_run(stage: Stage) -> BuildResponse:
    print_heading("2. A run with tools, a profile and an account, by XADD")
    response = await _send(stage, REQUESTS["run"], "stream")
    run = _context(response)
    print_outline(run.messages)
    print_tokens(run.usage)
    print_text("With `ctxb config init --preset recall`, CORE_IDENTITY has about 130 tokens.")
    print_decisions(run)
    return response


async def _limit_history(stage: Stage) -> str:
    tight = REQUESTS["short_of_memory"]
    tokens = tight["content"]["context"]["memory_tokens"]
    print_heading(f"3. Only {tokens} tokens for history: what stays, what goes, and why")
    limited = _context(await _send(stage, tight, "stream"))
    print_decisions(limited)
    print_text(f"[SHARED_MEMORY] has {limited.usage.blocks['SHARED_MEMORY']} tokens.")
    return limited.build_id


async def send_comparisons(stage: Stage) -> None:
    """Send one question with different options, so that the inspector has builds to compare."""
    print_heading("7. The same question in other ways, to be compared in the inspector")
    for request in REQUESTS["compared"]:
        print_summary(_context(await _send(stage, request, "stream")))
    await stage.history.prune(OWNER, HIDDEN)
    print_summary(_context(await _send(stage, REQUESTS["after_pruning"], "stream")))


async def _record_answer(stage: Stage) -> None:
    """Publish the rows of a model's answer, and wait until the recorder has stored them."""
    print_heading("The model answers; its rows go to llm.results and tools.results")
    answer = REQUESTS["answer"]
    for published in answer:
        await stage.bus.bus.append(published["topic"], json.dumps(published["row"]).encode())
    ids = {published["row"]["id"] for published in answer}
    until = time.monotonic() + WAIT_SECONDS
    while not ids <= {row["id"] for row in (await stage.history.recent(OWNER, max_rows=10)).rows}:
        if time.monotonic() > until:
            raise CommandError("the rows on the results streams were not recorded")
        if stage.worker is not None:
            stage.worker.check_running()
        await asyncio.sleep(RETRY_SECONDS)
    print_text(f"Recorded, and in the next context: {answer[-1]['row']['content']}")


async def _send(
    stage: Stage, request: Mapping[str, Any], via: Literal["stream", "channel"]
) -> BuildResponse:
    """Send a request, to a channel as soon as a worker listens, and print how long it took."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        if stage.worker is not None:
            stage.worker.check_running()
        before = time.perf_counter()
        try:
            response = await stage.client.send(request, timeout_seconds=WAIT_SECONDS, via=via)
        except NoWorkerError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(RETRY_SECONDS)
            continue
        milliseconds = (time.perf_counter() - before) * 1000
        print_text(f"{request['id']}: {response.content.status} after {milliseconds:.0f} ms")
        return response


def _context(response: BuildResponse) -> BuildSuccess:
    content = response.content
    if content.status == "error":
        raise CommandError(
            f"a context was expected, not {content.error.code}: {content.error.detail}"
        )
    return content


def _print_error(response: BuildResponse) -> None:
    content = response.content
    if content.status == "success":
        raise CommandError("an error was expected, not a context")
    print_text(f"{content.error.code}: {content.error.detail}")


def print_heading(text: str) -> None:
    """Print a line that begins a part of the tour."""
    console().print()
    console().rule(text, align="left")
