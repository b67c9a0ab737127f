from typing import Any

import pytest

from bench.laws.builds import build_all
from bench.laws.cases import Case
from bench.laws.checks import LAWS, Ask, check, check_refusal
from service.wire.response import BuildFailure, BuildSuccess, ErrorBody
from tests.laws.building import built
from tests.laws.examples import Asked

PAST = [{"id": "a", "role": "HUMAN", "content": "When do we sail?"}]
RUN: list[dict[str, Any]] = [
    {"id": "b", "role": "AI", "content": "", "tool_calls": [{"id": "c1", "name": "f"}]},
    {"id": "c", "role": "TOOL", "content": "At dawn.", "tool_call_id": "c1"},
]
CASE = Case(name="one", past=PAST, words="Well?", run=RUN, tools=None)
ASK = Ask(layout="chat", memory_tokens=64)


@pytest.fixture(scope="module")
def context() -> BuildSuccess:
    """Give the context of the case."""
    options = {"layout": "chat", "memory_tokens": 64}
    asked = Asked(
        past=PAST, run=RUN, words="Well?", profile="", tools=None, context=options, summaries=[]
    )
    return built(asked, "oldest_first")


def laws(content: BuildSuccess, ask: Ask = ASK) -> set[str]:
    """Return which laws a context breaks."""
    return {broken.law for broken in check(CASE, ask, content)}


def test_a_true_context_breaks_nothing(context: BuildSuccess) -> None:
    """Nor do all the builds of its case."""
    assert laws(context) == set()
    found = build_all(CASE, stride=30)
    assert (found.broken, found.refused) == ({}, 0)
    assert found.builds > 0


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (lambda content: {"messages": content.messages[:-1]}, "invalid_sequences"),
        (lambda content: {"decisions": content.decisions[1:]}, "undecided"),
        (lambda content: {"kept": 9}, "undecided"),
        (lambda content: {"usage": content.usage.model_copy(update={"total": 1})}, LAWS[-1]),
        (lambda content: {"usage": content.usage.model_copy(update={"tools": 1})}, LAWS[-1]),
        (lambda content: {"messages": content.messages[:1]}, LAWS[-1]),
    ],
)
def test_a_false_one_is_found(context: BuildSuccess, change: Any, law: str) -> None:
    """A call without its result, a row without a decision, a number that isn't so."""
    assert law in laws(context.model_copy(update=change(context)))


def test_budgets_are_counted(context: BuildSuccess) -> None:
    """In all, and for history."""
    assert laws(context, Ask(layout="chat", max_tokens=context.usage.total - 1)) == {"over_budget"}
    assert laws(context, Ask(layout="chat", memory_tokens=1)) == {"over_budget"}
    assert laws(context, Ask(layout="chat", form="gemini")) == {"invalid_sequences"}


@pytest.mark.parametrize(
    ("code", "needed", "wrongly"),
    [("budget_exceeded", 11, False), ("budget_exceeded", 10, True), ("crash", 11, True)],
)
def test_refusals(code: str, needed: int, *, wrongly: bool) -> None:
    """Only what needs more than there is may be refused."""
    body = ErrorBody(code=code, title="", detail="", retryable=False)
    reported = list(
        check_refusal(BuildFailure(error=body), Ask(layout="chat", max_tokens=10), needed)
    )

    assert bool(reported) is wrongly
