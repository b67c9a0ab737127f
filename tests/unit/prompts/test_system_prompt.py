import copy
from dataclasses import replace

import pytest

from formatters.model import Facts, Message, Role
from prompts.capabilities import capabilities
from prompts.identity import CORE_IDENTITY, PLAIN, QUOTING, WITHOUT_CAPABILITIES
from prompts.system_prompt import (
    ContextSection,
    EveryNTurns,
    OnTokenThreshold,
    PersistentContext,
    PromptManager,
    SystemInjector,
    SystemPrompt,
)


def test_the_shipped_identity_is_the_default() -> None:
    """Nothing is added to it."""
    assert SystemPrompt().text() == CORE_IDENTITY


def test_what_the_gutter_means_is_said_once_and_where_there_is_one() -> None:
    """The shipped identity says it itself; without a guard nobody needs it."""
    assert SystemPrompt(identity=WITHOUT_CAPABILITIES).text() == WITHOUT_CAPABILITIES
    assert SystemPrompt(identity=PLAIN).text() == f"{PLAIN}\n\n{QUOTING}"
    assert SystemPrompt(identity=PLAIN).text(guarded=False) == PLAIN
    assert SystemPrompt(identity="").text() == QUOTING
    assert SystemPrompt(identity="").text(guarded=False) == ""


def test_sections_stand_behind_the_identity() -> None:
    """After a request's own as well; what the gutter means follows both."""
    prompt = SystemPrompt(identity="I", sections="## Rules\nBe kind.")

    assert prompt.text() == f"I\n\n## Rules\nBe kind.\n\n{QUOTING}"
    assert prompt.text("Mine") == f"Mine\n\n## Rules\nBe kind.\n\n{QUOTING}"
    assert (
        replace(prompt, identity=CORE_IDENTITY).text() == f"{CORE_IDENTITY}\n\n## Rules\nBe kind."
    )


def test_sections_stand_below_their_labels() -> None:
    """The example of neuron-context: what has the lower priority goes first."""
    context = PersistentContext()
    context.add_section(ContextSection("Output rules", "Always show code.", 10))
    context.add_section(ContextSection("Role", "You are a senior Python engineer.", 0))

    assert context.render() == (
        "## Role\nYou are a senior Python engineer.\n\n## Output rules\nAlways show code."
    )


def test_sections_of_one_priority_keep_their_order() -> None:
    """The order in which they were added decides between equals."""
    context = PersistentContext(ContextSection(label, "x") for label in "ba")
    context.add_section(ContextSection("first", "x", -1))

    assert context.render() == "## first\nx\n\n## b\nx\n\n## a\nx"


def test_nothing_is_trimmed() -> None:
    """Labels and contents are the caller's, an empty label too; no sections are no text."""
    assert PersistentContext([ContextSection("", " Some content \n")]).render() == (
        "## \n Some content \n"
    )
    assert PersistentContext().render() == ""


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


def test_core_identity_is_the_constant() -> None:
    """The manager hands out the identity as it is in code."""
    text = PromptManager().get_core_identity()

    assert text == CORE_IDENTITY
    assert text == text.strip()
    assert len(text) > 100


def test_capabilities_are_the_block_as_text() -> None:
    """The manager's text is the one that the builder sends."""
    tools = [{"type": "function", "function": {"name": "clock", "description": "Tell the time"}}]

    text = PromptManager().get_capabilities_prompt(tools)

    assert text == capabilities(Facts(current_input="", tools=tuple(tools))).text
    assert text.endswith("### clock\nTell the time\n")


def test_no_tools() -> None:
    """Without tools the block says that there are none."""
    assert PromptManager().get_capabilities_prompt([]) == (
        "[CAPABILITIES]\nAvailable tools in this conversation:\n\n(No tools available)"
    )


def test_definitions_stay_untouched() -> None:
    """Definitions given to the manager are the caller's and stay as they are."""
    tools = [{"function": {"name": "f\n", "parameters": {"properties": {"a": {"type": "string"}}}}}]
    before = copy.deepcopy(tools)

    PromptManager().get_capabilities_prompt(tools)

    assert tools == before
