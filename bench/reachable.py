"""Measure what a model reaches of a history with calls of the tool `recall`.

    python -m bench.reachable --data DIR [--limit N] [--tokens 1000] [--turns N] [--json]

Each question of `locomo` is a build with few tokens for history and the strategy `relevance`, then
recalls by the question with as many tokens each, which exclude what the build showed and go on by
their ``next``. Messages are found as `bench.recall` finds them; ``one_build`` has the tokens of the
build and the first recall together.

``by_ids`` is the share of the messages that builds leave out which are fetched whole: by the id
that the decision on each names, and, step by step, from the handle that the context shows.
``handle_tokens_max`` is the most tokens of a handle of any message. ``history_prefix`` is that of
`bench.cache` under the preset `recall`, with the tool and, in ``without``, without it.
"""

import asyncio
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bench.cache.__main__ import LAYOUTS, grow
from bench.cache.prompts import Step, figures
from bench.recall.__main__ import AMPLE, HISTORY, NOW, PATIENT
from bench.recall.cases import Case, Question, cases
from bench.recall.evidence import CHARS
from bench.recounts import tokens as count_tokens
from bench.report import over_data, show
from formatters.guard import unquoted
from formatters.handles import make_handle
from service.app import open_builder
from service.builder import ContextBuilder
from service.config.settings import Settings
from service.wire.recall import MAX_IDS, RecallRequest, RecallSuccess
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess

#: Builds of each conversation whose left out messages are fetched.
BUILDS: Final = 3
#: Tokens for history, of which the prefix is measured.
CACHE_TOKENS: Final = 4_000


def main() -> None:
    """Measure and print."""
    parser = over_data(__doc__)
    parser.add_argument("--limit", type=int, help="conversations at most")
    parser.add_argument("--tokens", type=int, default=1_000, help="for history, and for each call")
    parser.add_argument("--turns", type=int, help="of a conversation, for the prefix")
    options = parser.parse_args()
    given = cases(options.data, "locomo")[: options.limit]
    reported = asyncio.run(measured(given, options.tokens, options.turns))
    show(reported, as_json=options.json)


async def measured(given: Sequence[Case], tokens: int, turns: int | None) -> dict[str, Any]:
    """Return the figures over all questions, and over all messages."""
    shares: list[tuple[float, float, float, float]] = []
    fetched: list[bool] = []
    handles: list[int] = []
    for case in given:
        async with open_builder(Settings(gather=PATIENT)) as builder:
            await builder.history.append(case.id, case.rows)
            shares += [await _asked(builder, case, each, tokens) for each in case.questions]
            fetched += await _fetched(builder, case, tokens)
        handles += [count_tokens(make_handle(row["id"])) for row in case.rows]
    names = ("in_context", "after_one_call", "after_two_calls", "one_build")
    means = [round(statistics.fmean(values), 4) for values in zip(*shares, strict=True)]
    return {
        **dict(zip(names, means, strict=True)),
        "by_ids": round(statistics.fmean(fetched), 4),
        "handle_tokens_max": max(handles),
        "history_prefix": await _prefixes(given, turns),
        "questions": len(shares),
        "left_out": len(fetched),
    }


# --- what is left out ------------------------------------------------------------------------


async def _fetched(builder: ContextBuilder, case: Case, tokens: int) -> list[bool]:
    """Return for each message that some builds leave out whether it can be fetched whole."""
    rows = {row["id"]: row["content"] for row in case.rows}
    whole: list[bool] = []
    for question in case.questions[:BUILDS]:
        built = await _built(
            builder, case, question, tokens, "chat", recall_tool=True, explain=True
        )
        decided = {id_: d.decision for d in built.decisions for id_ in d.message_ids}
        left_out = [id_ for id_ in rows if decided.get(id_, "not_read") != "kept"]
        (handle,) = re.findall(r"newest: (\w+)\)", built.messages[-1]["content"])
        by_ids = await _walk(builder, case.id, [{"ids": ids} for ids in _batches(left_out)])
        steps = {"around": handle, "before": 50, "after": 50, "max_tokens": 4 * tokens}
        by_steps = await _walk(builder, case.id, [steps])
        whole += [
            all(rows[id_].strip() in texts.get(id_, "") for texts in (by_ids, by_steps))
            for id_ in left_out
        ]
    return whole


def _batches(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), MAX_IDS):
        yield [*ids[start : start + MAX_IDS]]


async def _walk(
    builder: ContextBuilder, owner: str, waiting: list[dict[str, Any]]
) -> dict[str, str]:
    """Return the texts of all messages that recalls fetch, until none goes on, by id."""
    texts: dict[str, str] = defaultdict(str)
    while waiting:
        answer = await recalled(builder, owner, waiting.pop())
        for message in answer.messages:
            for id_ in message.message_ids:
                texts[id_] += unquoted(message.text)
        waiting += answer.next
    return texts


async def _prefixes(given: Sequence[Case], turns: int | None) -> dict[str, Any]:
    """Return what stays of history from build to build, with the tool and without it."""
    ways: dict[str, dict[str, Any]] = {"with": {"recall_tool": True}, "without": {}}
    steps: dict[tuple[str, str], list[Step]] = defaultdict(list)
    for case in given:
        grown = Case(case.id, case.rows[:turns], ())
        for way, found in (await grow(grown, CACHE_TOKENS, ways)).items():
            steps[way] += found
    shares = {way: figures(found, CACHE_TOKENS)["history_prefix"] for way, found in steps.items()}
    own, other = ({layout: shares[name, layout] for layout in LAYOUTS} for name in ways)
    return {**own, "without": other}


# --- questions -------------------------------------------------------------------------------


async def _asked(
    builder: ContextBuilder, case: Case, question: Question, tokens: int
) -> tuple[float, float, float, float]:
    built = await _built(builder, case, question, tokens)
    texts = [_history(built)]
    content = {
        "query": question.text,
        "max_tokens": tokens,
        "exclude_build": built.build_id,
        "timestamp_utc": NOW,
    }
    calls = [content]
    shares = [_share(case, question, texts)]
    for _ in range(2):
        if calls:
            answer = await recalled(builder, case.id, calls[0])
            texts.append(unquoted(answer.text))
            calls = answer.next
        shares.append(_share(case, question, texts))
    twice = _history(await _built(builder, case, question, 2 * tokens))
    return shares[0], shares[1], shares[2], _share(case, question, [twice])


async def _built(
    builder: ContextBuilder,
    case: Case,
    question: Question,
    tokens: int,
    layout: str = "tagged",
    **options: bool,
) -> BuildSuccess:
    context = {
        "strategy": "relevance",
        "max_tokens": AMPLE,
        "reserve_tokens": 0,
        "memory_limit": None,
        "memory_tokens": tokens,
        "layout": layout,
        **options,
    }
    content = {"current_input": question.text, "timestamp_utc": NOW, "context": context}
    request = BuildRequest.model_validate({"owner_key": case.id, "content": content})
    answer = (await builder.build(request)).content
    if answer.status != "success":
        raise RuntimeError(answer.error.detail)
    return answer


async def recalled(
    builder: ContextBuilder, owner: str, content: Mapping[str, Any]
) -> RecallSuccess:
    """Return the answer to a recall, which keeps to its tokens."""
    request = RecallRequest.model_validate({"owner_key": owner, "content": dict(content)})
    answer = (await builder.recall(request)).content
    if answer.status != "success":
        raise RuntimeError(answer.error.detail)
    if answer.usage.total > answer.usage.max_tokens:
        raise RuntimeError(f"over the {answer.usage.max_tokens} tokens of the recall")
    return answer


def _history(content: BuildSuccess) -> str:
    sent = (str(each["content"]) for each in content.messages)
    return unquoted("\n".join(text for text in sent if text.startswith(HISTORY)))


def _share(case: Case, question: Question, texts: Sequence[str]) -> float:
    """Return how many of the messages that answer the question are in any of the texts."""
    wanted = [row["content"][:CHARS].strip() for row in case.rows if row["id"] in question.evidence]
    return sum(any(words in text for text in texts) for words in wanted) / len(question.evidence)


if __name__ == "__main__":
    main()
