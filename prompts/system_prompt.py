"""What the operator has a model told: the identity, sections behind it, and reminders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Protocol

from formatters.model import Count, Facts, Message, Role, Tool
from prompts.capabilities import capabilities
from prompts.identity import CORE_IDENTITY


class PromptManager:
    """The prompts as text, for callers who have no use for blocks."""

    def get_core_identity(self) -> str:
        """Return CORE_IDENTITY, the same for everybody."""
        return CORE_IDENTITY

    def get_capabilities_prompt(self, tools: Sequence[Tool]) -> str:
        """Return the `[CAPABILITIES]` block for OpenAI function definitions, in their order."""
        return capabilities(Facts(current_input="", tools=tuple(tools))).text


#: Stands between sections, and between the parts of a prompt.
GAP: Final = "\n\n"


@dataclass(frozen=True, slots=True)
class ContextSection:
    """A piece of a prompt under a heading of its own."""

    label: str
    content: str
    #: Lower goes first.
    priority: int = 0


class PersistentContext:
    """Sections that stand in every prompt, rendered as one text."""

    def __init__(self, sections: Iterable[ContextSection] = ()) -> None:
        self._sections = list(sections)

    def add_section(self, section: ContextSection) -> None:
        """Add a section; among those of one priority it comes last."""
        self._sections.append(section)

    def render(self) -> str:
        """Return all sections in their order, each under a heading; nothing where there are none.

        Labels and contents stay as they are.
        """
        ordered = sorted(self._sections, key=attrgetter("priority"))
        return GAP.join(f"## {section.label}\n{section.content}" for section in ordered)


class InjectionTrigger(Protocol):
    """Tells when a reminder is due: `EveryNTurns`, `OnTokenThreshold`, or another like these."""

    def fires(self, turn: int, tokens: int) -> bool:
        """Return whether it is due in this turn, counted from 1, with so many tokens of history."""
        ...


@dataclass(frozen=True, slots=True)
class EveryNTurns:
    """Fires in each turn that is a multiple of ``turns``; with 0 never."""

    turns: int

    def fires(self, turn: int, tokens: int) -> bool:  # noqa: ARG002 - turns alone count
        """Return whether the turn is such a one."""
        return self.turns > 0 and turn > 0 and turn % self.turns == 0


@dataclass(frozen=True, slots=True)
class OnTokenThreshold:
    """Fires in every turn from ``tokens`` tokens on."""

    tokens: int

    def fires(self, turn: int, tokens: int) -> bool:  # noqa: ARG002 - tokens alone count
        """Return whether there are as many."""
        return tokens >= self.tokens


class SystemInjector:
    """Rules, each a trigger and the text that it brings."""

    def __init__(self) -> None:
        self._rules: list[tuple[InjectionTrigger, str]] = []

    def add_rule(self, trigger: InjectionTrigger, content: str) -> None:
        """Add a rule behind the others."""
        self._rules.append((trigger, content))

    def check(self, turn: int, tokens: int) -> list[str]:
        """Return the texts that are due, in the order of their rules."""
        return [content for trigger, content in self._rules if trigger.fires(turn, tokens)]

    def due(self, history: Sequence[Message], not_read: int, count: Count) -> tuple[str, ...]:
        """Return the texts that are due after a history of which so many rows were not read.

        The turn is one more than the human messages of the history; among rows that were not read
        there are as many as among the others. The tokens are those of the texts that were read.
        """
        if not self._rules:
            return ()
        humans = sum(message.role is Role.HUMAN for message in history)
        turn = 1 + humans + not_read * humans // max(len(history), 1)
        return tuple(self.check(turn, self._tokens(history, count)))

    def _tokens(self, history: Sequence[Message], count: Count) -> int:
        # counting takes time, and a rule that counts turns has no use for it
        if all(isinstance(trigger, EveryNTurns) for trigger, _ in self._rules):
            return 0
        return sum(count(message.content) for message in history)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPrompt:
    """The operator's texts, as they were last read."""

    identity: str = CORE_IDENTITY
    #: What stands behind the identity; empty for nothing.
    sections: str = ""
    injector: SystemInjector = field(default_factory=SystemInjector)

    def text(self, own: str | None = None) -> str:
        """Return the system message; ``own`` takes the identity's place, sections stay."""
        return GAP.join(filter(None, (own or self.identity, self.sections)))
