"""What a build costs, beside one plain count of the text that it sends.

    python -m bench.build [--json] [--rounds 15]

For histories of several lengths: CPU milliseconds of a build whose pieces were counted before
(``warm``) and of the first one (``cold``), and both over the CPU that tiktoken takes to count the
finished context once (``…_ratio``). ``growth`` is the warm build with the longest history over the
one with 200 messages. Medians of interleaved rounds.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from service.adapters.memory_store import open_memory_store
from service.adapters.tokenizers import TiktokenTokenizers, load_encoding
from service.app import now
from service.builder import ContextBuilder
from service.config.settings import Settings
from service.gather import Sources
from service.wire import BuildRequest

LENGTHS = (20, 200, 2_000, 20_000)
#: Tokens for history: what the longest histories have to be fitted into.
MEMORY_TOKENS = 4_000


def messages(count: int) -> list[dict[str, Any]]:
    """Return a made-up conversation, the same for each run."""
    draw = random.Random(count)  # noqa: S311 - to be repeatable, not secret
    words = ("lake", "quiet", "when", "we", "came", "back", "with", "both", "boats", "and", "why")
    start = datetime(2025, 1, 1, tzinfo=UTC)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        text = " ".join(draw.choices(words, k=draw.randint(5, 60))) + f" ({number})"
        rows.append(
            {
                "id": f"m{number}",
                "run_id": f"r{number // 2}",
                "role": "AI" if number % 2 else "HUMAN",
                "content": text,
                "timestamp": (start + timedelta(minutes=number)).isoformat(),
                "metadata": {},
            }
        )
    return rows


async def cpu_ms(act: Callable[[], Any]) -> float:
    """Return the CPU milliseconds of something, awaited where it has to be."""
    began = time.process_time()
    result = act()
    if asyncio.iscoroutine(result):
        await result
    return (time.process_time() - began) * 1000


async def measure(length: int, rounds: int, figures: dict[str, list[float]]) -> None:
    """Add the figures of one length."""
    tokenizers = TiktokenTokenizers()
    counter = tokenizers.counter("o200k_base")
    encoding = load_encoding("o200k_base")
    async with open_memory_store(counter, now) as stores:
        await stores.history.append("o", messages(length))
        context = {"memory_limit": None, "memory_tokens": MEMORY_TOKENS, "max_tokens": 20_000}
        content = {"current_input": "What did we decide about the boats?", "context": context}
        request = BuildRequest.model_validate({"owner_key": "o", "content": content})

        def builder() -> ContextBuilder:
            # a new table of counts each time: a cold build has counted nothing yet
            return ContextBuilder(
                sources=Sources(
                    history=stores.history,
                    profiles=stores.profiles,
                    tools=NoTools(),
                ),
                tokenizers=TiktokenTokenizers(),
                clock=now,
                settings=Settings(),
            )

        warm = builder()
        response = await warm.build(request)
        assert response.content.status == "success", response.content  # noqa: S101 - measured
        text = "\n".join(message["content"] for message in response.content.messages)
        for _ in range(rounds):
            cold = builder()
            figures[f"cold/{length}"].append(await cpu_ms(partial(cold.build, request)))
            figures[f"warm/{length}"].append(await cpu_ms(partial(warm.build, request)))
            figures[f"count/{length}"].append(await cpu_ms(partial(encoding.encode_ordinary, text)))


class NoTools:
    """A registry without tools."""

    version = 0

    def get_tool_definition(self, name: str) -> None:
        """Return None."""

    def get_all_tool_definitions(self) -> list[Any]:
        """Return nothing."""
        return []

    def list_tool_names(self) -> list[str]:
        """Return nothing."""
        return []


async def run(rounds: int) -> dict[str, Any]:
    """Measure all lengths and return the figures."""
    figures: dict[str, list[float]] = defaultdict(list)
    for length in LENGTHS:
        await measure(length, rounds, figures)
    medians = {name: statistics.median(values) for name, values in figures.items()}
    result: dict[str, Any] = defaultdict(dict)
    for length in LENGTHS:
        for kind in ("warm", "cold"):
            result[f"{kind}_cpu_ms"][str(length)] = round(medians[f"{kind}/{length}"], 2)
            ratio = medians[f"{kind}/{length}"] / medians[f"count/{length}"]
            result[f"{kind}_ratio"][str(length)] = round(ratio, 2)
    result["growth"] = round(medians[f"warm/{LENGTHS[-1]}"] / medians["warm/200"], 2)
    return dict(result)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = asyncio.run(run(options.rounds))
    if options.json:
        print(json.dumps(result))
        return
    rows = [("stored messages", "warm ms", "cold ms", "warm/count", "cold/count")]
    tables = ("warm_cpu_ms", "cold_cpu_ms", "warm_ratio", "cold_ratio")
    rows += [(n, *(result[table][n] for table in tables)) for n in map(str, LENGTHS)]
    for row in rows:
        print("".join(f"{cell:>16}" for cell in row))
    print(f"growth of a warm build from 200 to {LENGTHS[-1]} messages: {result['growth']}")


if __name__ == "__main__":
    main()
