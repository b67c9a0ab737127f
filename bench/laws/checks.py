"""What is wrong with an answer: counted and read apart from the service."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.laws.cases import Case
from bench.recounts import Parts, cost_of_tools, parts_of, unanswered
from service.wire.response import COUNTS, BuildFailure, BuildSuccess
from tests.validity.canonical import canonical
from tests.validity.forms import VALIDATORS

#: A limit that every context fits into.
AMPLE: Final = 100_000_000

#: The laws that may be broken, in the order in which they are printed.
LAWS: Final = (
    "refused_wrongly",
    "over_budget",
    "invalid_sequences",
    "undecided",
    "count_differences",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The options of a build, besides the content of its case."""

    layout: str
    strategy: object = "oldest_first"
    form: str = "openai"
    max_tokens: int = AMPLE
    memory_tokens: int | None = None
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """A law that a build broke."""

    law: str
    detail: str


def check_refusal(content: BuildFailure, ask: Ask, needed: int) -> Iterator[Broken]:
    """Report a refusal where what is ``needed`` fits, or for any other reason."""
    error = content.error
    if error.code != "budget_exceeded" or needed <= ask.max_tokens:
        yield Broken("refused_wrongly", f"{needed} needed: {error.code}: {error.detail}")


def check(case: Case, ask: Ask, content: BuildSuccess) -> Iterator[Broken]:
    """Report each law that a context breaks, once."""
    wrong = _wrong_messages(ask, content)
    if wrong:
        yield Broken("invalid_sequences", "; ".join(wrong[:3]))
    if undecided := _undecided(case, content):
        yield Broken("undecided", undecided)
    try:
        parts = parts_of(content)
    except ValueError as error:
        yield Broken("count_differences", str(error))
        return
    tools = cost_of_tools(content.tools)
    yield from _over(ask, parts, tools)
    usage = content.usage
    if usage.blocks != parts.costs or usage.tools != tools:
        yield Broken("count_differences", f"reported {usage.blocks}, counted {parts.costs}")
    elif sum(parts.costs.values()) + tools != usage.total:
        yield Broken("count_differences", f"the reported total is {usage.total}")


def _over(ask: Ask, parts: Parts, tools: int) -> Iterator[Broken]:
    total = sum(parts.costs.values()) + tools
    if total > ask.max_tokens:
        yield Broken("over_budget", f"{total} in all")
    elif ask.memory_tokens and ask.strategy != "none" and parts.remembered > ask.memory_tokens:
        yield Broken("over_budget", f"{parts.remembered} for history")


def _wrong_messages(ask: Ask, content: BuildSuccess) -> list[str]:
    wrong = [*unanswered(content.messages), *canonical(content.messages, content.tools)]
    if wrong or ask.form not in VALIDATORS:
        return wrong
    body = content.provider_request
    if body is None:
        return [f"there is no provider_request for {ask.form}"]
    return [f"{ask.form}: {each}" for each in VALIDATORS[ask.form](body, ())]


def _undecided(case: Case, content: BuildSuccess) -> str:
    decided = Counter(id_ for each in content.decisions for id_ in each.message_ids)
    expected = Counter(set(case.candidates))
    if decided != expected:
        return f"lacking {list(expected - decided)[:3]}, too often {list(decided - expected)[:3]}"
    counted = sum(getattr(content, name) for name in COUNTS)
    return "" if counted == len(expected) else f"{counted} of {len(expected)} are counted"
