"""The system message: the identity, and the operator's sections and reminders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Protocol

from formatters.model import Block, Count, Entry, Facts, Message, Role, Tag, Tool
from prompts.capabilities import capabilities
from prompts.identity import CORE_IDENTITY, QUOTING, WITHOUT_CAPABILITIES

#: Separates sections, and the parts of a prompt.
SEPARATOR: Final = "\n\n"


def core_identity(facts: Facts) -> Block:
    """Show CORE_IDENTITY or the operator's text, whole under any budget; nothing if it is empty."""
    text = CORE_IDENTITY if facts.identity is None else facts.identity
    entries = (Entry(text=text),) if text else ()
    return Block(tag=Tag.CORE_IDENTITY, entries=entries, role="system")


@dataclass(frozen=True, slots=True)
class ContextSection:
    """A part of a prompt with a heading of its own."""

    label: str
    content: str
    #: Lower values come first.
    priority: int = 0


class PersistentContext:
    """Sections that are in every prompt."""

    def __init__(self, sections: Iterable[ContextSection] = ()) -> None:
        self._sections = list(sections)

    def add_section(self, section: ContextSection) -> None:
        """Add a section, after those of the same priority."""
        self._sections.append(section)

    def render(self) -> str:
        """Return the sections as one text, each with its heading; empty if there are none."""
        ordered = sorted(self._sections, key=attrgetter("priority"))
        return SEPARATOR.join(f"## {section.label}\n{section.content}" for section in ordered)


class InjectionTrigger(Protocol):
    """Decides when a reminder is due: `EveryNTurns`, `OnTokenThreshold`, or one of your own."""

    def fires(self, turn: int, tokens: int) -> bool:
        """Return whether a reminder is due; turns count from 1, ``tokens`` are the history's."""


@dataclass(frozen=True, slots=True)
class EveryNTurns:
    """Fires in every turn that is a multiple of ``turns``; never if that is 0."""

    turns: int

    def fires(self, turn: int, tokens: int) -> bool:  # noqa: ARG002 - only the turn is used
        """Return whether the turn is a multiple."""
        return self.turns > 0 and turn > 0 and turn % self.turns == 0


@dataclass(frozen=True, slots=True)
class OnTokenThreshold:
    """Fires in every turn with a history of at least ``tokens`` tokens."""

    tokens: int

    def fires(self, turn: int, tokens: int) -> bool:  # noqa: ARG002 - only tokens are used
        """Return whether the history has at least that many tokens."""
        return tokens >= self.tokens


class SystemInjector:
    """Rules, each a trigger and the reminder that it injects."""

    def __init__(self) -> None:
        self._rules: list[tuple[InjectionTrigger, str]] = []

    def add_rule(self, trigger: InjectionTrigger, content: str) -> None:
        """Add a rule after the others."""
        self._rules.append((trigger, content))

    def check(self, turn: int, tokens: int) -> list[str]:
        """Return the reminders that are due, in the order of their rules."""
        return [content for trigger, content in self._rules if trigger.fires(turn, tokens)]

    def due(self, history: Sequence[Message], not_read: int, count: Count) -> tuple[str, ...]:
        """Return the reminders that are due after a history; ``not_read`` more rows weren't read.

        The turn is the number of human messages plus 1; rows that were not read are assumed to
        have as many as the others. The tokens are those of the rows that were read.
        """
        if not self._rules:
            return ()
        humans = sum(message.role is Role.HUMAN for message in history)
        turn = 1 + humans + not_read * humans // max(len(history), 1)
        return tuple(self.check(turn, self._count_tokens(history, count)))

    def _count_tokens(self, history: Sequence[Message], count: Count) -> int:
        # counting is slow, and rules that count turns don't need it
        if all(isinstance(trigger, EveryNTurns) for trigger, _ in self._rules):
            return 0
        return sum(count(message.content) for message in history)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPrompt:
    """The operator's texts as of the last read."""

    identity: str = CORE_IDENTITY
    #: The text after the identity; may be empty.
    sections: str = ""
    injector: SystemInjector = field(default_factory=SystemInjector)

    def text(self, own: str | None = None, *, guarded: bool = True) -> str:
        """Return the system message; ``own`` replaces the identity, but not the sections.

        Where something replaces `CORE_IDENTITY` in a guarded context, a last paragraph says what
        the gutter means.
        """
        identity = own or self.identity
        explains = identity in (CORE_IDENTITY, WITHOUT_CAPABILITIES)
        quoting = QUOTING if guarded and not explains else ""
        return SEPARATOR.join(filter(None, (identity, self.sections, quoting)))


class PromptManager:
    """Writes the system message and the tools."""

    def get_core_identity(self) -> str:
        """Return CORE_IDENTITY."""
        return CORE_IDENTITY

    def get_capabilities_prompt(self, tool_definitions: Sequence[Tool]) -> str:
        """Return the `[CAPABILITIES]` block of OpenAI function definitions, in order."""
        return capabilities(Facts(current_input="", tools=tuple(tool_definitions))).text
