"""Reminders, and when they are due."""

import pytest

from formatters.model import Message, Role
from prompts.system_prompt import EveryNTurns, OnTokenThreshold, SystemInjector

CONCISE = "Reminder: keep responses concise."
LONG = "Context is getting long. Summarize when possible."


@pytest.fixture
def injector() -> SystemInjector:
    """Return the injector of neuron-context's example."""
    injector = SystemInjector()
    injector.add_rule(EveryNTurns(5), CONCISE)
    injector.add_rule(OnTokenThreshold(50_000), LONG)
    return injector


@pytest.mark.parametrize(
    ("turn", "tokens", "texts"),
    [
        (5, 0, [CONCISE]),
        (10, 0, [CONCISE]),
        (4, 0, []),
        (0, 0, []),
        (1, 50_000, [LONG]),
        (2, 60_000, [LONG]),
        (1, 49_999, []),
        (5, 50_000, [CONCISE, LONG]),
    ],
)
def test_the_triggers_decide(
    turn: int, tokens: int, texts: list[str], injector: SystemInjector
) -> None:
    """Multiples of n but 0 fire, and every turn from the threshold on, in the rules' order."""
    assert injector.check(turn, tokens) == texts


def test_every_0_turns_is_never() -> None:
    """Nothing is divided by 0."""
    injector = SystemInjector()
    injector.add_rule(EveryNTurns(0), CONCISE)

    assert [injector.check(turn, 0) for turn in range(3)] == [[], [], []]


def said(*roles: Role) -> list[Message]:
    """Return a message of 10 characters from each."""
    return [Message(id=str(place), role=role, content="x" * 10) for place, role in enumerate(roles)]


def test_the_turn_is_the_next_of_the_history() -> None:
    """The human's words now are one turn more than those before; nobody else's words count."""
    injector = SystemInjector()
    injector.add_rule(EveryNTurns(3), CONCISE)
    one, two = said(Role.HUMAN, Role.AI), said(Role.HUMAN, Role.TOOL, Role.HUMAN, Role.OTHER)

    assert injector.due(one, 0, len) == ()
    assert injector.due(two, 0, len) == (CONCISE,)


def test_rows_that_were_not_read_count_like_those_that_were() -> None:
    """Turns go on being counted in a history that is longer than what a build reads."""
    injector = SystemInjector()
    injector.add_rule(EveryNTurns(50), CONCISE)
    history = said(Role.HUMAN, Role.AI) * 10

    due = [turn for turn in range(11, 200) if injector.due(history, 2 * (turn - 11), len)]

    assert due == [50, 100, 150]


def test_tokens_are_those_of_the_texts() -> None:
    """What was read is counted, and what was not isn't."""
    injector = SystemInjector()
    injector.add_rule(OnTokenThreshold(20), LONG)

    assert injector.due(said(Role.HUMAN), 100, len) == ()
    assert injector.due(said(Role.HUMAN, Role.AI), 0, len) == (LONG,)


def test_nothing_is_counted_in_vain() -> None:
    """Rules that look at turns alone, or none at all, cost no tokenizer's time."""

    def never(_text: str) -> int:
        raise AssertionError

    injector = SystemInjector()
    assert injector.due(said(Role.HUMAN), 0, never) == ()
    injector.add_rule(EveryNTurns(2), CONCISE)
    assert injector.due(said(Role.HUMAN), 0, never) == (CONCISE,)
