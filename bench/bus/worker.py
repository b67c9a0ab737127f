"""A worker as `ctxb worker` runs it, with or without a builder in it.

    python -m bench.bus.worker build|constant

`build` is the worker as it is, with a short history for each owner. With `constant`, the builder
answers every request with one small context: what remains is the bus, decode, handler, sender and
inbox. Settings come over stdin as JSON, so that the server's password is in no list of
processes. It says on stdout what a build costs here, then works until SIGTERM.
"""

import asyncio
import json
import signal
import sys
import time
from dataclasses import fields
from typing import Final

from bench.bus.load import OWNERS, request
from bench.conversation import conversation
from service.aio import reduce_garbage_collection, run
from service.app import make_worker, open_builder, open_bus
from service.builder import Answered, ContextBuilder
from service.config.settings import Settings
from service.observe.logs import configure_logging
from service.wire.request import BuildRequest, decode
from service.wire.response import BuildResponse, BuildSuccess, Usage, make_response
from service.worker.event_publisher import EventPublisher

#: Messages of each owner's history.
HISTORY: Final = 6
#: Builds that are timed before the worker starts, after the same number that warm it up.
TIMED: Final = 200

#: The content of an answer of some 700 bytes.
CONSTANT: Final = BuildSuccess(
    messages=[{"role": "user", "content": "What did we decide about the boats?"}],
    tools=[],
    usage=Usage(
        model=None,
        tokenizer="o200k_base",
        exact=True,
        budget=8000,
        reserve=2000,
        available=6000,
        total=12,
        tools=0,
        utilization=0.002,
        cacheable_prefix=0,
        blocks={"THIS_MOMENT": 12},
    ),
    build_id="bld_00000000000000000000000000000000",
    kept=0,
    dropped=0,
)


class ConstantBuilder(ContextBuilder):
    """A builder that builds nothing."""

    __slots__ = ()

    async def answer(self, request: BuildRequest) -> Answered[BuildResponse]:
        """Answer with the constant."""
        return Answered(make_response(BuildResponse, request.envelope, CONSTANT, self.clock()))


async def _build_cost(builder: ContextBuilder) -> tuple[float, int]:
    """Return the CPU of a build in microseconds, one after the other, and the answer's bytes."""
    requests = [decode(request(-1 - number)) for number in range(TIMED)]
    for each in requests:
        answered = await builder.answer(each)
    began = time.process_time()
    for each in requests:
        answered = await builder.answer(each)
    spent = time.process_time() - began
    return spent / TIMED * 1e6, len(answered.response.model_dump_json())


async def _serve(kind: str, settings: Settings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with open_bus(settings) as connected:
        events = EventPublisher(connected.bus)
        async with open_builder(settings, events=events) as opened:
            builder = opened
            if kind == "constant":
                parts = {each.name: getattr(opened, each.name) for each in fields(opened)}
                builder = ConstantBuilder(**parts)
            else:
                rows = conversation(HISTORY)
                for owner in range(OWNERS):
                    await builder.history.append(f"owner_{owner}", rows)
            cost, size = await _build_cost(builder)
            print(json.dumps({"build_us": cost, "response_bytes": size}), flush=True)
            reduce_garbage_collection()
            await make_worker(connected.bus, builder).run(stop)


if __name__ == "__main__":
    chosen = Settings.model_validate_json(sys.stdin.readline())
    configure_logging()
    run(_serve(sys.argv[1], chosen))
