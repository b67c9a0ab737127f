"""The demo's way: a request after the other, what comes back, and whether it is right."""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from service.cli.demo import requests as ask
from service.cli.demo.next_steps import print_next_steps
from service.cli.demo.stage import OWNER, DemoError, Stage, set_up
from service.cli.demo.staying import print_inspector, wait_until_told
from service.cli.tables import (
    console,
    print_context,
    print_decisions,
    print_outline,
    print_summary,
    print_tokens,
    say,
)
from service.wire.protocol import Topics
from service.wire.response import BuildResponse, BuildSuccess, ErrorBody
from service.worker.client import NoWorkerError

#: Seconds that the worker has to start, and that a row has to be recorded.
PATIENCE: Final = 30.0
#: Seconds between two looks.
LOOK: Final = 0.05


async def tour(*, in_memory: bool, serve: bool) -> None:
    """Show what the service does; raises `DemoError` where it does something else.

    With ``serve`` it then goes on, with the inspector open, until SIGTERM or Ctrl-C.
    """
    with TemporaryDirectory(prefix="ctxb-demo-") as folder:
        async with set_up(Path(folder), in_memory=in_memory, serve=serve) as stage:
            stored = (await stage.history.recent(OWNER)).total
            say(f"A history of {stored} messages is stored: Ines and Tomas plan a surprise.")
            say(f"Bus: {stage.where}.")
            await _plain(stage)
            await _answered(stage)
            full = await _full(stage)
            await _short_of_memory(stage)
            await _impossible(stage)
            await _malformed(stage)
            await _again(stage, full)
            if stage.inspector is not None:
                await _inspected(stage, stage.inspector)
    _heading("That was all")
    say("The worker has finished and exited cleanly; nothing is left behind.")
    print_next_steps(served=serve)


async def _plain(stage: Stage) -> None:
    _heading("1. A question, by PUBLISH on context.build.request")
    content = _context(await _send(stage, ask.PLAIN, "channel"))
    print_context(content, lines=6)
    print_summary(content)
    _check(len(content.messages) == 5, "a context has five messages")
    _check(content.usage.total <= content.usage.available, "a context fits into its budget")


async def _answered(stage: Stage) -> None:
    _heading("The model answers; its rows go to llm.results and tools.results")
    for topic, row in (
        (Topics.LLM_RESULTS, ask.CALL),
        (Topics.TOOLS_RESULTS, ask.TOOL_RESULT),
        (Topics.LLM_RESULTS, ask.SAID),
    ):
        await stage.bus.append(topic, json.dumps(row).encode())
    await _recorded(stage, {ask.CALL["id"], ask.TOOL_RESULT["id"], ask.SAID["id"]})
    say(f"Recorded, and in the next context: {ask.ANSWER}")


async def _full(stage: Stage) -> BuildResponse:
    _heading("2. A run with tools, a profile and an account, by XADD")
    response = await _send(stage, ask.FULL, "stream")
    content = _context(response)
    print_outline(content.messages)
    print_tokens(content.usage)
    print_decisions(content)
    sent = json.dumps(content.messages)
    usage = content.usage
    _check(ask.ANSWER in sent, "the model's answer is part of the next context")
    _check("They like short answers" in sent, "the request's profile is used")
    _check(len(content.tools) == 2, "the tools asked for are sent along")
    _check(sum(usage.blocks.values()) + usage.tools == usage.total, "the tokens add up")
    return response


async def _short_of_memory(stage: Stage) -> None:
    _heading(f"3. Only {ask.MEMORY_TOKENS} tokens for history: what stays, what goes, and why")
    content = _context(await _send(stage, ask.SHORT_OF_MEMORY, "stream"))
    print_decisions(content)
    used = content.usage.blocks["SHARED_MEMORY"]
    say(f"[SHARED_MEMORY] has {used} tokens.")
    _check(used <= ask.MEMORY_TOKENS, "history keeps to its tokens")
    _check(content.dropped > 0, "what does not fit is left out")
    decided = [name for each in content.decisions for name in each.message_ids]
    _check(len(decided) == len(set(decided)), "each message is decided on once")


async def _impossible(stage: Stage) -> None:
    _heading("4. A window too small for what has to be sent")
    error = _error(await _send(stage, ask.IMPOSSIBLE, "stream"))
    _check(error.code == "budget_exceeded", "an impossible budget is refused")
    _check("CORE_IDENTITY" in error.detail, "it is said what is too large")


async def _malformed(stage: Stage) -> None:
    _heading("5. A request with a mistake")
    error = _error(await _send(stage, ask.MALFORMED, "channel"))
    _check(error.code == "invalid_request", "a mistake is refused")
    places = [problem["pointer"] for problem in error.errors]
    _check(ask.WRONG_PLACE in places, "the place of the mistake is named")


async def _again(stage: Stage, first: BuildResponse) -> None:
    _heading("6. The second request once more, as after a lost answer")
    response = await _send(stage, ask.FULL, "stream")
    _check(response.id == first.id, "a retry gets the same response")
    _check(response.content == first.content, "a retry is not built anew")
    say(f"The same response, not built anew: {response.id}")


async def _inspected(stage: Stage, inspector: str) -> None:
    _heading("7. The same question in other ways, to be compared in the inspector")
    for request in ask.COMPARED:
        print_summary(_context(await _send(stage, request, "stream")))
    hidden = await stage.history.prune(OWNER, ask.HIDDEN)
    _check(hidden == len(ask.HIDDEN), "rows can be hidden by hand")
    print_summary(_context(await _send(stage, ask.AFTER_PRUNING, "stream")))
    _heading("The inspector")
    print_inspector(inspector, OWNER, stage.bus_url)
    await wait_until_told(stage.worker)


# --- sending and checking --------------------------------------------------------------------


async def _send(
    stage: Stage, request: Mapping[str, Any], via: Literal["stream", "channel"]
) -> BuildResponse:
    """Send a request, to the channel as soon as somebody listens, and say how long it took."""
    until = time.monotonic() + PATIENCE
    while True:
        stage.check_worker()
        before = time.perf_counter()
        try:
            response = await stage.client.send(request, timeout_seconds=PATIENCE, via=via)
        except NoWorkerError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(LOOK)
            continue
        milliseconds = (time.perf_counter() - before) * 1000
        say(f"{request['id']}: {response.content.status} after {milliseconds:.0f} ms")
        return response


async def _recorded(stage: Stage, ids: set[str]) -> None:
    """Wait until the recorder has written rows."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        stage.check_worker()
        page = await stage.history.recent(OWNER, max_rows=10)
        if ids <= {str(row["id"]) for row in page.rows}:
            return
        await asyncio.sleep(LOOK)
    raise DemoError("what was published on the results streams was not recorded")


def _context(response: BuildResponse) -> BuildSuccess:
    content = response.content
    if content.status == "error":
        raise DemoError(f"a context was expected, not {content.error.code}: {content.error.detail}")
    return content


def _error(response: BuildResponse) -> ErrorBody:
    content = response.content
    if content.status == "success":
        raise DemoError("an error was expected, not a context")
    error = content.error
    say(f"{error.code}: {error.detail}")
    return error


def _check(right: bool, claim: str) -> None:
    if not right:
        raise DemoError(f"this does not hold: {claim}")


def _heading(text: str) -> None:
    console().print()
    console().rule(text, align="left")
