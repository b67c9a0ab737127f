"""Measure the share of a prompt that is unchanged since the previous build, as conversations grow.

    python -m bench.cache --data DIR [--tokens 4000] [--skip N] [--limit N] [--quick] [--json]

Each conversation of `locomo` is a chat that grows by one message of either speaker per turn; from
turn 50 on there is one build per turn, through `service.app.open_builder`, with the next human
message as the input. Shares are of the tokens that are sent, counted with tiktoken's
``o200k_base``, and are means over builds.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bench.cache.prompts import Prompt, Step, figures, prompt
from bench.recall.__main__ import PATIENT
from bench.recall.cases import Case, cases
from bench.report import over_data
from service.app import open_builder
from service.builder import ContextBuilder
from service.config.settings import Settings
from service.wire.request import BuildRequest

#: The turn of the first build.
FIRST: Final = 50
#: Turns a conversation and conversations at most in a quick run.
QUICK_TURNS, QUICK_CASES = 250, 2
#: Above any prompt.
AMPLE: Final = 1_000_000

LAYOUTS: Final = ("chat", "tagged")
#: The measured cases: the preset's own strategy, and others under the same settings.
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "recall": {},
    "stable_window": {"strategy": "stable_window"},
    "sliding_window": {"strategy": "sliding_window"},
    "oldest_first": {"strategy": "oldest_first"},
}


def main() -> None:
    """Measure and print."""
    parser = over_data(__doc__)
    parser.add_argument("--tokens", type=int, default=4_000, help="for history")
    parser.add_argument("--skip", type=int, default=0, help="conversations at the beginning")
    parser.add_argument("--limit", type=int, help="conversations at most")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    given = cases(options.data, "locomo")[options.skip :][: options.limit]
    if options.quick:
        given = [Case(c.id, c.rows[:QUICK_TURNS], ()) for c in given[:QUICK_CASES]]
    reported = asyncio.run(measured(given, options.tokens))
    print(json.dumps(reported) if options.json else "\n".join(_report(reported)))


async def measured(given: Sequence[Case], tokens: int) -> dict[str, Any]:
    """Return the figures by layout, for the preset and then for what it is compared with."""
    steps: dict[tuple[str, str], list[Step]] = defaultdict(list)
    for case in given:
        for way, found in (await grow(case, tokens, WAYS)).items():
            steps[way] += found
    reported = {way: figures(found, tokens) for way, found in steps.items()}
    return {
        **{layout: reported["recall", layout] for layout in LAYOUTS},
        **{
            name: {layout: reported[name, layout] for layout in LAYOUTS}
            for name in WAYS
            if name != "recall"
        },
    }


async def grow(
    case: Case, tokens: int, ways: Mapping[str, Mapping[str, Any]]
) -> Mapping[tuple[str, str], list[Step]]:
    """Build in all ways after each message of a conversation, while a human has more to say.

    Returns the builds by way and layout.
    """
    steps: dict[tuple[str, str], list[Step]] = defaultdict(list)
    before: dict[tuple[str, str], Prompt] = {}
    async with open_builder(Settings(preset="recall", gather=PATIENT)) as builder:
        await builder.history.append(case.id, case.rows[: FIRST - 1])
        for turn in range(FIRST, len(case.rows)):
            await builder.history.append(case.id, case.rows[turn - 1 : turn])
            words = _next_human(case.rows[turn:])
            if words is None:
                break
            newest = [row["content"] for row in case.rows[turn - 2 : turn]]
            for name, way in ways.items():
                for layout in LAYOUTS:
                    context = {**way, "layout": layout, "memory_tokens": tokens}
                    built = prompt(await _built(builder, case.id, words, context))
                    steps[name, layout].append(Step(built, before.get((name, layout)), newest))
                    before[name, layout] = built
    return steps


def _next_human(rows: Sequence[Mapping[str, Any]]) -> str | None:
    return next((str(row["content"]) for row in rows if row["role"] == "human"), None)


async def _built(
    builder: ContextBuilder, owner: str, words: str, context: Mapping[str, Any]
) -> list[dict[str, Any]]:
    limits = {"max_tokens": AMPLE, "reserve_tokens": 0}
    content = {"current_input": words, "context": {**limits, **context}}
    request = BuildRequest.model_validate({"owner_key": owner, "content": content})
    return (await builder.build_or_raise(request)).content.messages  # `build` would file it too


def _report(reported: Mapping[str, Any]) -> Iterator[str]:
    rows = {name: each for name, each in reported.items() if name in LAYOUTS}
    for name, by_layout in reported.items():
        if name not in LAYOUTS:
            rows |= {f"{name}/{layout}": each for layout, each in by_layout.items()}
    names = list(next(iter(rows.values())))
    yield f"{'':<24}" + "".join(f"{name:>20}" for name in names)
    for name, each in rows.items():
        yield f"{name:<24}" + "".join(f"{value:>20}" for value in each.values())


if __name__ == "__main__":
    main()
