"""Users and assistants in turn, as some APIs want them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from formatters.model import ChatMessage

#: Stands before an assistant's message that would be the first.
OPENING: Final = "(This is how the conversation went so far.)"
#: Stands after an assistant's message that would be the last, and between two that can't be one.
CONTINUE: Final = "(Please go on.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one canonical message comes to."""

    role: Literal["user", "assistant"]
    #: Blocks or parts in the provider's form.
    blocks: tuple[object, ...]
    #: True where nothing may stand before it in its message.
    leads: bool = False
    #: True where it may share its message only with its like, as tool results do.
    apart: bool = False


def alternating(
    messages: Iterable[Said], text: Callable[[str], object]
) -> Iterator[tuple[str, list[object]]]:
    """Yield roles with their blocks, merged, from a user's to a user's; empty messages go.

    ``text`` gives a text as the provider's block.
    """
    for merged in _merged(message for message in messages if message.blocks):
        blocks = [block for message in merged for block in message.blocks]
        yield merged[0].role, [text(block) if isinstance(block, str) else block for block in blocks]


def speaker(message: ChatMessage) -> Literal["user", "assistant"]:
    """Return who of the two says a message; for an API that knows no more, a result is a user's."""
    return "assistant" if message.role == "assistant" else "user"


def _merged(messages: Iterable[Said]) -> list[list[Said]]:
    turns: list[list[Said]] = []
    for message in messages:
        if not turns and message.role == "assistant":
            turns.append([_ours(OPENING)])
        last = turns[-1][-1] if turns else None
        if last is None or (last.role, last.apart) != (message.role, message.apart):
            turns.append([message])
        elif message.leads:
            turns += [[_ours(CONTINUE)], [message]]
        else:
            turns[-1].append(message)
    if turns and turns[-1][-1].role == "assistant":
        turns.append([_ours(CONTINUE)])
    return turns


def _ours(text: str) -> Said:
    return Said(role="user", blocks=(text,))
