"""Whether hostile texts can forge structure, and what guarding costs ordinary ones.

    python -m bench.hostile --data DIR [--json] [--generated 100000] [--seed 1]

Every text of DIR's ``injections``, and forgeries made by a grammar, stand in every untrusted place
of a context at once, whole or in two halves in neighbouring places, in each layout. The reader then
has to find the same structure as with harmless words there. Texts of ``injections`` go through
`service.app.open_builder`. Generated ones go through the same builder, but are counted by their
length: an exact count would take most of the time, and where everything fits it decides nothing.
What the budget shortens is read beside it, from the blocks themselves.

``forged`` counts the texts with which structure came or went, ``crashes`` those without an answer;
``benign_altered`` is the share of benign texts with an altered line, and
``conversation_lines_altered`` that of the lines of all dialogues and trajectories in DIR.
"""

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from bench.forgeries import OWN_TAG, Forgery, forgery
from bench.json_lines import read_lines
from bench.places import HARMLESS, request, shortened
from bench.reader import Piece, read
from bench.report import over_data, show
from formatters.guard import quoted
from service.adapters.memory.store import open_memory_store
from service.adapters.tools.registry import InMemoryToolRegistry
from service.app import open_builder
from service.build.gather import Sources
from service.builder import ContextBuilder
from service.connect import now

#: The layouts that are built. A new one needs nothing but its name here.
LAYOUTS: Final = ("tagged", "chat")

#: Forgeries that a process works through before it reports.
CHUNK: Final = 1_000

TAGS: Final = frozenset({OWN_TAG})


@dataclass(slots=True)
class Tally:
    """What became of some texts."""

    forged: int = 0
    crashes: int = 0
    #: Of the first few: the text, and what was read.
    examples: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add what another process found."""
        self.forged += other.forged
        self.crashes += other.crashes
        self.examples = [*self.examples, *other.examples][:20]


# --- judging ---------------------------------------------------------------------------------


class Judge:
    """Builds contexts and compares what is read in them with what was put in."""

    def __init__(self, builder: ContextBuilder) -> None:
        self._builder = builder
        self._expected: dict[str, tuple[Piece, ...]] = {}

    async def judge(self, text: Forgery, chars: int, tally: Tally) -> None:
        """Judge one text in all places; any exception at all is a crash."""
        try:
            wrong = [
                place for place in ("shortened", *LAYOUTS) if await self._forges(place, text, chars)
            ]
        except Exception as error:  # noqa: BLE001 - that none comes is what is measured
            tally.crashes += 1
            tally.examples.append(f"{text!r}: {error!r}")
            return
        if wrong:
            tally.forged += 1
            tally.examples.append(f"{', '.join(wrong)} at {chars}: {text!r}")

    async def _forges(self, place: str, text: Forgery, chars: int) -> bool:
        if place not in self._expected:
            self._expected[place] = await self._read(place, HARMLESS, 500)
        return await self._read(place, text, chars) != self._expected[place]

    async def _read(self, place: str, text: Forgery, chars: int) -> tuple[Piece, ...]:
        if place == "shortened":
            return read(list(shortened(text, chars)), [OWN_TAG])
        answer = (await self._builder.build(request(text, place))).content
        if answer.status != "success":
            raise RuntimeError(answer.error.detail)
        return read(answer.messages, [OWN_TAG])


class ByLength:
    """Counts by length, for contexts that fit anyway."""

    name = "by_length"
    exact = False

    def count(self, text: str) -> int:
        """Return a fourth of the characters."""
        return len(text) // 4

    def counter(self, tokenizer: str) -> "ByLength":  # noqa: ARG002 - a port's method
        """Return this counter, whatever the name."""
        return self


async def _judge_generated(seed: int, numbers: range) -> Tally:
    tally = Tally()
    counter = ByLength()
    async with open_memory_store(counter, now) as stores:
        sources = Sources(
            history=stores.history, profiles=stores.profiles, tools=InMemoryToolRegistry()
        )
        judge = Judge(ContextBuilder(sources=sources, tokenizers=counter, clock=now))
        for number in numbers:
            text = forgery(seed, number)
            await judge.judge(text, _chars(seed, number, text), tally)
    return tally


async def judge_texts(texts: Sequence[str]) -> Tally:
    """Judge given texts, with real counts."""
    tally = Tally()
    async with open_builder() as builder:
        judge = Judge(builder)
        for number, text in enumerate(texts):
            whole = Forgery(text, text)
            await judge.judge(whole, _chars(0, number, whole), tally)
    return tally


def _chars(seed: int, number: int, text: Forgery) -> int:
    """Return a number of characters to shorten to, anywhere in the text."""
    return random.Random(f"{number}/{seed}").randint(1, max(len(text.first), 2))  # noqa: S311 - to be repeatable


def _run_chunk(seed: int, numbers: range) -> Tally:
    return asyncio.run(_judge_generated(seed, numbers))


def judge_generated(count: int, seed: int) -> Tally:
    """Judge forgeries on all cores."""
    tally = Tally()
    chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(partial(_run_chunk, seed), chunks):
            tally.add(found)
    return tally


# --- ordinary text ---------------------------------------------------------------------------


def altered(text: str) -> int:
    """Return how many lines of a text the guard alters."""
    pairs = zip(text.splitlines(), quoted(text, TAGS).splitlines(), strict=True)
    return sum(plain != guarded for plain, guarded in pairs)


def conversation_share(data: Path) -> float:
    """Return the share of altered lines in all dialogues and trajectories."""
    lines = changed = 0
    for row in chain.from_iterable(map(read_lines, sorted(data.glob("*.jsonl.gz")))):
        for message in row.get("messages", ()):
            if isinstance(content := message.get("content"), str):
                lines += len(content.splitlines())
                changed += altered(content)
    return changed / max(lines, 1)


def measure(data: Path, generated: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Return the figures, and examples of what went wrong."""
    injections = list(read_lines(data / "injections.jsonl.gz"))
    benign = [row["text"] for row in injections if row["label"] == "benign"]
    tally = asyncio.run(judge_texts([row["text"] for row in injections]))
    tally.add(judge_generated(generated, seed))
    return {
        "texts": len(injections),
        "generated": generated,
        "forged": tally.forged,
        "crashes": tally.crashes,
        "benign_altered": sum(map(bool, map(altered, benign))) / max(len(benign), 1),
        "conversation_lines_altered": conversation_share(data),
    }, tally.examples


def main() -> None:
    """Measure and print."""
    parser = over_data(__doc__)
    parser.add_argument("--generated", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    figures, examples = measure(options.data, options.generated, options.seed)
    for example in examples:
        print(example, file=sys.stderr)
    show(figures, as_json=options.json)


if __name__ == "__main__":
    main()
