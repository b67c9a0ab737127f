"""What calls and their results are named by in one request, as a provider takes it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from formatters.model import ChatMessage
from formatters.providers.canonical import Canonical
from formatters.providers.names import NameForm, fitted
from formatters.providers.opaque import Opaque, ReadPart, opaque_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a provider takes as the name of a tool, the id of a call and a part of its own."""

    name: NameForm
    id: NameForm
    read: ReadPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a call, and the result that answers it, is named by."""

    #: None where the provider's own call has none.
    id: str | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The names and ids of one request."""

    #: From a tool's canonical name.
    names: Mapping[str, str]
    #: From a call's canonical id.
    calls: Mapping[str, Reference]
    #: What each message sends as it came.
    opaque: tuple[Opaque, ...]


def refer(chat: Canonical, rules: Rules) -> References:
    """Find names and ids that fit, each for one thing, the same for a call and its result.

    Calls that are sent as they came keep theirs, and their results take them over.
    """
    calls = [call for message in chat.messages for call in message.tool_calls]
    names = fitted(
        [*(str(function["name"]) for function in chat.tools), *(call.name for call in calls)],
        rules.name,
    )
    opaque = tuple(_without_repeats(chat, rules))
    kept = dict(
        pair
        for message, parts in zip(chat.messages, opaque, strict=True)
        for pair in _paired(message, parts)
    )
    taken = {reference.id for reference in kept.values() if reference.id is not None}
    made = fitted([str(call.id) for call in calls if call.id not in kept], rules.id, taken)
    ours = {
        str(call.id): Reference(id=made[str(call.id)], name=names[call.name])
        for call in calls
        if call.id not in kept
    }
    return References(names=names, calls={**kept, **ours}, opaque=opaque)


def _without_repeats(chat: Canonical, rules: Rules) -> Iterator[Opaque]:
    """Yield what each message sends as it came, unless it has a call whose id was there before."""
    seen: set[str] = set()
    for message in chat.messages:
        opaque = opaque_of(message, rules.read)
        ids = [part.id for part in opaque.calls if part.id is not None]
        if len({*ids} - seen) < len(ids):
            yield Opaque()
        else:
            seen.update(ids)
            yield opaque


def _paired(message: ChatMessage, opaque: Opaque) -> Iterator[tuple[str, Reference]]:
    """Pair the calls of a message with those that are sent as they came: by id, else by place."""
    if not opaque.calls:
        return
    by_id = {part.id: part for part in opaque.calls}
    same = set(by_id) == {call.id for call in message.tool_calls}
    for place, call in enumerate(message.tool_calls):
        part = by_id[call.id] if same else opaque.calls[place]
        yield str(call.id), Reference(id=part.id, name=part.name)
