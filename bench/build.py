"""Measure selecting and fitting of history, and whole builds, against peers that do the same task.

    python -m bench.build [--json] [--rounds 15]

CPU milliseconds, medians of interleaved rounds, for 20 to 20,000 stored messages. `README.md` in
this folder explains the keys, and `bench.contenders` what is compared.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from bench.contenders import CONTENDERS, VOCABULARY, Contender, set_task, versions
from bench.conversation import QUESTION, conversation
from formatters.model import Row
from service.adapters.memory.store import open_memory_store
from service.adapters.tokens.encodings import load_encoding
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.aio import reduce_garbage_collection
from service.budget.strategies import STRATEGIES
from service.build.gather import Sources
from service.builder import ContextBuilder
from service.connect import now
from service.ports.stores import Stores
from service.wire.request import BuildRequest

LENGTHS: Final = (20, 200, 2_000, 20_000)

#: Messages at most over which strategies are compared.
LONGEST: Final = 2_000

#: Tokens for history: what the longer conversations have to be fitted into.
MEMORY_TOKENS: Final = 4_000

#: Our timings beside the peers': choosing and fitting alone, then with the rest of our work.
OURS: Final = {"": "fit", "_with_decisions": "fit_and_decide", "_with_showing": "show_and_fit"}

#: CPU milliseconds of each round, by what was measured and the number of messages.
Figures = dict[tuple[str, int], list[float]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measured(options.rounds)
    print(json.dumps(result) if options.json else "\n".join(_report(result)))


def measured(rounds: int) -> dict[str, Any]:
    """Measure all lengths and return the figures by their keys."""
    reduce_garbage_collection()  # as `ctxb worker` does
    figures: Figures = defaultdict(list)
    kept: dict[str, dict[str, int]] = defaultdict(dict)
    for length in LENGTHS:
        rows = conversation(length)
        for name, messages in _contest(rows, rounds, figures).items():
            kept[name][str(length)] = messages
        asyncio.run(_builds(rows, rounds, figures))
        if length <= LONGEST:
            asyncio.run(_strategies(rows, rounds, figures))
    medians = {key: statistics.median(values) for key, values in figures.items()}
    return {**_keys(medians), "kept": kept, "peers": versions(), "rounds": rounds}


# --- measuring -------------------------------------------------------------------------------


def _contest(rows: Sequence[Row], rounds: int, figures: Figures) -> dict[str, int]:
    """Let all contenders do the task in turn; returns how many messages each one keeps."""
    length = len(rows)
    task = set_task(rows, QUESTION, MEMORY_TOKENS)
    there = {name: each for name, each in CONTENDERS.items() if _takes_part(each, length)}
    warm = {name: each.prepare(task) for name, each in there.items()}
    kept = {name: trim() for name, trim in warm.items()}
    for _ in range(rounds):
        for name, each in there.items():
            if each.remembers:
                cold = each.prepare(task)
                figures[f"{name}_cold_ms", length].append(_cpu_ms(cold))
                warm[name]()  # else the processor's caches would hold the cold one, or another peer
            figures[f"{name}_ms", length].append(_cpu_ms(warm[name]))
    return kept


def _takes_part(contender: Contender, length: int) -> bool:
    return contender.installed and length <= (contender.longest or length)


async def _builds(rows: Sequence[Row], rounds: int, figures: Figures) -> None:
    """Measure whole builds, next to one plain count of the text that they send."""
    length = len(rows)
    request = _request("oldest_first")
    async with open_memory_store(partial(TiktokenTokenizers().counter, VOCABULARY), now) as stores:
        await stores.history.append("o", rows)
        warm = _builder(stores)
        response = await warm.build(request)
        text = "\n".join(message["content"] for message in response.content.messages)
        count = partial(load_encoding(VOCABULARY).encode_ordinary, text)
        for _ in range(rounds):
            for key, builder in (("build_cold_cpu_ms", _builder(stores)), ("build_cpu_ms", warm)):
                began = time.process_time()
                await builder.build(request)
                figures[key, length].append((time.process_time() - began) * 1000)
            figures["plain_count_ms", length].append(_cpu_ms(count))


async def _strategies(rows: Sequence[Row], rounds: int, figures: Figures) -> None:
    """Measure whole builds under each strategy, in turn; those that refuse are left out."""
    async with open_memory_store(partial(TiktokenTokenizers().counter, VOCABULARY), now) as stores:
        await stores.history.append("o", rows)
        builder = _builder(stores)
        asked = {name: _request(name) for name in STRATEGIES}
        answers = {name: await builder.build(request) for name, request in asked.items()}
        for _ in range(rounds):
            for name, answer in answers.items():
                if answer.content.status == "success":
                    began = time.process_time()
                    await builder.build(asked[name])
                    ms = (time.process_time() - began) * 1000
                    figures[f"build_{name}_cpu_ms", len(rows)].append(ms)


def _request(strategy: str) -> BuildRequest:
    context = {
        "strategy": strategy,
        "memory_limit": None,
        "memory_tokens": MEMORY_TOKENS,
        "max_tokens": 20_000,
    }
    content = {"current_input": QUESTION, "context": context}
    return BuildRequest.model_validate({"owner_key": "o", "content": content})


def _builder(stores: Stores) -> ContextBuilder:
    """Return a builder that has counted nothing yet, and has no tools."""
    sources = Sources(history=stores.history, profiles=stores.profiles, tools=_NoTools())
    return ContextBuilder(sources=sources, tokenizers=TiktokenTokenizers(), clock=now)


class _NoTools:
    """A registry without tools."""

    version = 0
    stale = ()

    def get_tool_definition(self, name: str) -> None:
        """Return None."""

    def get_all_tool_definitions(self) -> list[Any]:
        """Return nothing."""
        return []

    def list_tool_names(self) -> list[str]:
        """Return nothing."""
        return []


def _cpu_ms(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return (time.process_time() - began) * 1000


# --- report ----------------------------------------------------------------------------------


def _keys(medians: dict[tuple[str, int], float]) -> dict[str, Any]:
    """Return the medians as tables by length, and what they are to each other; null: not there."""
    names = [key for name, each in CONTENDERS.items() for key in each.keys(name)]
    builds = [f"build_{name}_cpu_ms" for name in STRATEGIES]
    tables = {
        key: {str(length): _rounded(medians.get((key, length)), 3) for length in LENGTHS}
        for key in (*names, "build_cpu_ms", "build_cold_cpu_ms", "plain_count_ms", *builds)
    }

    def ratio(over: tuple[str, int], under: tuple[str, int]) -> float | None:
        return _rounded(medians[over] / medians[under], 2) if over in medians else None

    speedups = {
        f"speedup_{name}_200{also}": ratio((f"{name}_ms", 200), (f"{ours}_ms", 200))
        for also, ours in OURS.items()
        for name, each in CONTENDERS.items()
        if each.package
    }
    growth = {"growth_200_to_20000": ratio(("build_cpu_ms", 20_000), ("build_cpu_ms", 200))}
    to_count = {
        str(length): ratio(("build_cpu_ms", length), ("plain_count_ms", length))
        for length in LENGTHS
    }
    return {**tables, **speedups, **growth, "build_to_plain_count": to_count}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _report(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines for a person: tables by length first, then single figures."""
    for name, release in result["peers"].items():
        if release is None:
            yield f"{name} is not installed here, so its figures are missing; see `make bench-env`"
    yield "".join([f"{'stored messages':<34}", *(f"{length:>12,}" for length in LENGTHS)])
    for key, value in result.items():
        if isinstance(value, dict) and key not in {"peers", "kept"}:
            yield "".join([f"{key:<34}", *(f"{_cell(figure):>12}" for figure in value.values())])
    for key, value in result.items():
        if not isinstance(value, dict):
            yield f"{key:<34}{_cell(value):>12}"


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


if __name__ == "__main__":
    main()
