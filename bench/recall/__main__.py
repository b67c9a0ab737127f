"""Measure how much of what answers a question remains, by strategy and tokens for history.

    python -m bench.recall --data DIR [--sets locomo,qmsum,cjk,bursts,code]
        [--budgets 1000,2000,4000] [--strategies oldest_first,importance,…] [--limit N] [--json]
    python -m bench.recall --times [--sizes 600,20000,1000000] [--before TREE] [--json]

Each question is one build through `service.app.open_builder`, with the question as the current
input and the whole conversation as history. A message counts as kept if its text, or its first 450
characters, is in the history that is sent; passages of a long one count in part. The cost is
counted with ``o200k_base``, plus 4 tokens per message. With ``--times`` the CPU time of builds is
measured instead: `bench.recall.times`.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

from bench.recall.cases import Case, Question, cases
from bench.recall.evidence import share_answered, share_kept
from bench.recall.figures import Found, beside_best, figures
from bench.recall.pickers import (
    PASSAGES,
    PICKERS,
    TRIM,
    Lines,
    has_langchain,
    passages,
    single,
    trimmed,
)
from bench.recall.texts import full_text
from bench.recall.times import ROUNDS, SIZES, measure_times
from bench.recounts import cost
from bench.report import over_data, show
from ctxb import fit
from formatters.guard import unquoted
from service.app import open_builder
from service.budget.strategies import STRATEGIES
from service.builder import ContextBuilder
from service.config.settings import GatherSettings, Settings
from service.wire.request import BuildRequest

#: Above any history.
AMPLE: Final = 1_000_000
NOW: Final = "2025-12-10T08:00:00Z"
#: The strategies that keep to a budget.
EVERY: Final = tuple(name for name in STRATEGIES if name != "none")
HISTORY: Final = ("[SHARED_MEMORY", "[RECALLED")
#: The name of the preset `recall`, whose newest turns stay the same for providers' caches.
PRESET: Final = "preset_recall"
#: Machines that others use as well may take their time.
PATIENT: Final = GatherSettings(history_timeout_seconds=60)

#: By set, strategy or picker, and budget.
Figures = dict[str, list[Found]]


def main() -> None:
    """Measure and print."""
    if "--times" in sys.argv:
        _print_times()
        return
    parser = over_data(__doc__)
    parser.add_argument("--sets", default="locomo,qmsum,cjk,bursts,code,advice")
    parser.add_argument("--budgets", default="1000,2000,4000")
    parser.add_argument("--strategies", default=",".join(EVERY), help="all that keep to a budget")
    parser.add_argument("--limit", type=int, help="conversations of a set at most")
    options = parser.parse_args()
    budgets = list(map(int, options.budgets.split(",")))
    strategies = options.strategies.split(",")
    reported: dict[str, Any] = {}
    for name in options.sets.split(","):
        there = cases(options.data, name)[: options.limit]
        reported |= measured(name, there, strategies, budgets)
    print(json.dumps(reported) if options.json else "\n".join(_report(reported)))


def _print_times() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recall")
    parser.add_argument("--times", action="store_true", help="measure CPU time only")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="rows of the histories")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--before", type=Path, help="another tree of the project to compare with")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    show(measure_times(options.before, sizes, options.rounds), as_json=options.json)


def measured(
    name: str, given: Sequence[Case], strategies: Sequence[str], budgets: Sequence[int]
) -> dict[str, Any]:
    """Return the figures of a set, by its name, a strategy or picker, and the tokens."""
    reported: dict[str, Any] = {}
    others = _picked(given, budgets)
    ours = asyncio.run(_built(given, strategies, budgets))
    for budget, built in ours.items():
        for each, found in {**built, **others[budget]}.items():
            reported[f"{name}/{each}/{budget}"] = figures(found)
        for each, found in built.items():
            reported[f"{name}/{each}/{budget}"] |= beside_best(found, others[budget])
        reported[f"{name}/fit/{budget}"] = figures(_fitted(given, budget))
    return reported


# --- ours ------------------------------------------------------------------------------------


async def _built(
    given: Sequence[Case], strategies: Sequence[str], budgets: Sequence[int]
) -> dict[int, dict[str, list[Found]]]:
    """Build for all questions, by the tokens that history may have and by strategy."""
    reported: dict[int, dict[str, list[Found]]] = {budget: defaultdict(list) for budget in budgets}
    ways = {"classic": strategies, "recall": (PRESET,)}
    for case, (preset, names) in product(given, ways.items()):
        async with open_builder(Settings(preset=preset, gather=PATIENT)) as builder:
            await builder.history.append(case.id, case.rows)
            for budget, name in product(budgets, names):
                asked = [await _asked(builder, case, q, name, budget) for q in case.questions]
                reported[budget][name] += asked
    return reported


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
    text = unquoted("\n".join(each["content"] for each in sent))
    return _found(case, question, text, ms)


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


def _found(case: Case, question: Question, text: str, ms: float | None = None) -> Found:
    share = share_kept(case, question, text)
    return Found(question.category, share, ms, share_answered(question, text))


def _fitted(given: Sequence[Case], budget: int) -> list[Found]:
    """Fit each case's messages and a question in one call, as chat messages without times."""
    reported = []
    for case in given:
        roles = ("user" if row["role"].lower() == "human" else "assistant" for row in case.rows)
        said = [
            {"role": role, "content": full_text(row)}
            for role, row in zip(roles, case.rows, strict=True)
        ]
        for question in case.questions:
            began = time.perf_counter()
            kept = fit([*said, {"role": "user", "content": question.text}], budget).messages[:-1]
            ms = (time.perf_counter() - began) * 1000
            text = "\n".join(message["content"] for message in kept)
            reported.append(_found(case, question, text, ms))
    return reported


# --- others ----------------------------------------------------------------------------------


def _picked(given: Sequence[Case], budgets: Sequence[int]) -> dict[int, dict[str, list[Found]]]:
    """Let the other ways pick for the same questions, by the tokens that they may have."""
    reported: dict[int, dict[str, list[Found]]] = {budget: defaultdict(list) for budget in budgets}
    for case in given:
        lines, parts = Lines(case), passages(case)
        trims = {b: trimmed(case, b) for b in budgets} if has_langchain() else {}
        for question in case.questions:
            scores = {name: score(lines, question.text) for name, score in PICKERS.items()}
            by_passage = single(parts, question.text)
            for budget, found in reported.items():
                texts = {name: lines.picked(each, budget) for name, each in scores.items()}
                texts[PASSAGES] = parts.picked(by_passage, budget)
                texts |= {TRIM: trims[budget]} if trims else {}
                for name, text in texts.items():
                    found[name].append(_found(case, question, text))
    return reported


def _report(reported: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield f"{'':<36}{'recall':>10}{'all found':>12}{'p50 ms':>10}{'n':>7}   minus best baseline"
    for key, each in reported.items():
        interval = each.get("interval")
        beside = f"   {each['minus_best']} {interval}, {each['best_baseline']}" if interval else ""
        ms = each.get("p50_ms", "-")
        yield f"{key:<36}{each['recall']:>10}{each['all_found']:>12}{ms:>10}{each['n']:>7}{beside}"


if __name__ == "__main__":
    main()
