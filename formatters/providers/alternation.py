"""Merge messages until user and assistant alternate, as some APIs require."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

#: The user message before an assistant's message that would be the first.
OPENING: Final = "(This is how the conversation went so far.)"
#: The user message after an assistant's message that would be the last, and between two assistant
#: messages that can't be merged.
CONTINUE: Final = "(Please go on.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderMessage:
    """A canonical message as the provider has it."""

    #: ``user`` or ``assistant``.
    role: str
    #: Blocks or parts in the provider's form.
    blocks: tuple[object, ...]
    #: True if its blocks must be the first of a message.
    leads: bool = False
    #: True if it is only merged with other separate messages; for Gemini's tool results.
    separate: bool = False


def alternate_roles(
    messages: Iterable[ProviderMessage], text: Callable[[str], object]
) -> Iterator[tuple[str, list[object]]]:
    """Yield the roles and blocks of merged messages; the first and the last are the user's.

    Messages without blocks are dropped. ``text`` makes a block of the provider from a text.
    """
    for group in _group(message for message in messages if message.blocks):
        blocks = [block for message in group for block in message.blocks]
        yield group[0].role, [text(block) if isinstance(block, str) else block for block in blocks]


def _group(messages: Iterable[ProviderMessage]) -> list[list[ProviderMessage]]:
    groups: list[list[ProviderMessage]] = []
    for message in messages:
        if not groups and message.role == "assistant":
            groups.append([_user(OPENING)])
        last = groups[-1][-1] if groups else None
        if last is None or (last.role, last.separate) != (message.role, message.separate):
            groups.append([message])
        elif message.leads:
            groups += [[_user(CONTINUE)], [message]]
        else:
            groups[-1].append(message)
    if groups and groups[-1][-1].role == "assistant":
        groups.append([_user(CONTINUE)])
    return groups


def _user(text: str) -> ProviderMessage:
    return ProviderMessage(role="user", blocks=(text,))
