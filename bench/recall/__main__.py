"""Measure how much of what answers a question remains, by strategy and tokens for history.

    python -m bench.recall --data DIR [--sets locomo,qmsum,cjk] [--budgets 1000,2000,4000]
        [--strategies oldest_first,importance,…] [--limit N] [--json]

Each question is one build through `service.app.open_builder`, with the question as the current
input and the whole conversation as history. A message counts as kept if its text, or its first 450
characters, is in the history that is sent. The cost is counted with ``o200k_base``, plus 4 tokens
per message.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from bench.recall.cases import Case, Question, cases
from bench.recall.figures import Found, beside_best, figures
from bench.recall.pickers import PICKERS, TRIM, Lines, has_langchain, trimmed
from bench.recounts import cost
from bench.report import over_data
from service.app import open_builder
from service.budget.strategies import STRATEGIES
from service.builder import ContextBuilder
from service.config.settings import GatherSettings, Settings
from service.wire.request import BuildRequest

#: Characters of a message that have to be there.
CHARS: Final = 450
#: Above any history.
AMPLE: Final = 1_000_000
NOW: Final = "2025-12-10T08:00:00Z"
#: The strategies that keep to a budget.
EVERY: Final = tuple(name for name in STRATEGIES if name != "none")
HISTORY: Final = ("[SHARED_MEMORY", "[RECALLED")
#: What the preset `recall` finds, whose newest turns stand still for providers' caches.
PRESET: Final = "preset_recall"
#: Machines that others use as well may take their time.
PATIENT: Final = GatherSettings(history_timeout_seconds=60)

#: By set, strategy or picker, and budget.
Figures = dict[str, list[Found]]


def main() -> None:
    """Measure and print."""
    parser = over_data(__doc__)
    parser.add_argument("--sets", default="locomo,qmsum,cjk")
    parser.add_argument("--budgets", default="1000,2000,4000")
    parser.add_argument("--strategies", default=",".join(EVERY), help="all that keep to a budget")
    parser.add_argument("--limit", type=int, help="conversations of a set at most")
    options = parser.parse_args()
    budgets = list(map(int, options.budgets.split(",")))
    strategies = options.strategies.split(",")
    told: dict[str, Any] = {}
    for name in options.sets.split(","):
        there = cases(options.data, name)[: options.limit]
        told |= measured(name, there, strategies, budgets)
    print(json.dumps(told) if options.json else "\n".join(_report(told)))


def measured(
    name: str, given: Sequence[Case], strategies: Sequence[str], budgets: Sequence[int]
) -> dict[str, Any]:
    """Return the figures of a set, by its name, a strategy or picker, and the tokens."""
    told: dict[str, Any] = {}
    others = _picked(given, budgets)
    ours = asyncio.run(_built(given, strategies, budgets))
    for budget, built in ours.items():
        for each, found in {**built, **others[budget]}.items():
            told[f"{name}/{each}/{budget}"] = figures(found)
        for each, found in built.items():
            told[f"{name}/{each}/{budget}"] |= beside_best(found, others[budget])
    return told


# --- ours ------------------------------------------------------------------------------------


async def _built(
    given: Sequence[Case], strategies: Sequence[str], budgets: Sequence[int]
) -> dict[int, dict[str, list[Found]]]:
    """Build for all questions, by the tokens that history may have and by strategy."""
    told: dict[int, dict[str, list[Found]]] = {budget: defaultdict(list) for budget in budgets}
    ways = {"classic": strategies, "recall": (PRESET,)}
    for case, (preset, names) in product(given, ways.items()):
        async with open_builder(Settings(preset=preset, gather=PATIENT)) as builder:
            await builder.history.append(case.id, case.rows)
            for budget, name in product(budgets, names):
                asked = [await _asked(builder, case, q, name, budget) for q in case.questions]
                told[budget][name] += asked
    return told


async def _asked(
    builder: ContextBuilder, case: Case, question: Question, strategy: str, budget: int
) -> Found:
    request = _request(case.id, question.text, strategy, budget)
    began = time.perf_counter()
    content = (await builder.build(request)).content
    ms = (time.perf_counter() - began) * 1000
    if content.status != "success":
        raise RuntimeError(content.error.detail)
    sent = [each for each in content.messages if str(each["content"]).startswith(HISTORY)]
    if sum(map(cost, sent)) > budget:
        raise RuntimeError(f"{strategy} is over its budget of {budget}")
    text = "\n".join(each["content"] for each in sent)
    return Found(question.category, _share(case, question, text), ms)


def _request(owner: str, text: str, strategy: str, budget: int) -> BuildRequest:
    context = {
        "strategy": None if strategy == PRESET else strategy,
        "max_tokens": AMPLE,
        "reserve_tokens": 0,
        "memory_limit": None,
        "memory_tokens": budget,
    }
    content = {"current_input": text, "timestamp_utc": NOW, "context": context}
    return BuildRequest.model_validate({"owner_key": owner, "content": content})


def _share(case: Case, question: Question, text: str) -> float:
    """Return how many of the messages that answer the question stand in a text."""
    wanted = {row["id"]: row["content"] for row in case.rows if row["id"] in question.evidence}
    found = (wanted[id_][:CHARS].strip() in text for id_ in question.evidence)
    return sum(found) / len(question.evidence)


# --- others ----------------------------------------------------------------------------------


def _picked(given: Sequence[Case], budgets: Sequence[int]) -> dict[int, dict[str, list[Found]]]:
    """Let the other ways pick for the same questions, by the tokens that they may have."""
    told: dict[int, dict[str, list[Found]]] = {budget: defaultdict(list) for budget in budgets}
    for case in given:
        lines = Lines(case)
        trims = {b: trimmed(case, b) for b in budgets} if has_langchain() else {}
        for question in case.questions:
            scores = {name: score(lines, question.text) for name, score in PICKERS.items()}
            for budget, found in told.items():
                texts = {name: lines.picked(each, budget) for name, each in scores.items()}
                texts |= {TRIM: trims[budget]} if trims else {}
                for name, text in texts.items():
                    share = _share(case, question, text)
                    found[name].append(Found(question.category, share))
    return told


def _report(told: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield f"{'':<36}{'recall':>10}{'all found':>12}{'p50 ms':>10}{'n':>7}   minus best baseline"
    for key, each in told.items():
        interval = each.get("interval")
        beside = f"   {each['minus_best']} {interval}, {each['best_baseline']}" if interval else ""
        ms = each.get("p50_ms", "-")
        yield f"{key:<36}{each['recall']:>10}{each['all_found']:>12}{ms:>10}{each['n']:>7}{beside}"


if __name__ == "__main__":
    main()
