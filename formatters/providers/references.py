"""What calls and their results are named by in one request, as a provider takes it."""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

from formatters.model import ChatMessage
from formatters.providers.canonical import Canonical
from formatters.providers.opaque import OpaqueParts, ReadPart, read_opaque_parts

_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_BAD_START: Final = re.compile(r"^(?![A-Za-z_])")
#: Hex digits of the hash that keeps two names apart.
_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class NameForm:
    """What a provider takes as a name or an id."""

    #: The whole of a name, its length aside.
    pattern: re.Pattern[str]
    #: Characters of the longest.
    longest: int

    def fits(self, name: object) -> bool:
        """Tell whether a name can be sent as it is."""
        if not isinstance(name, str) or not 0 < len(name) <= self.longest:
            return False
        return self.pattern.fullmatch(name) is not None


def fit_names(names: Iterable[str], form: NameForm, taken: Collection[str] = ()) -> dict[str, str]:
    """Map each name to one of the form, and no two to the same, nor to one that is ``taken``.

    A name that fits stays as it is. Another keeps what it can and gets a hash of itself, so that it
    is called the same in the next request, whatever stands beside it.
    """
    wanted = list(dict.fromkeys(names))
    found = {name: name for name in wanted if form.fits(name) and name not in taken}
    used = {*taken, *found}
    for name in wanted:
        if name not in found:
            found[name] = next(made for made in _candidates(name, form) if made not in used)
            used.add(found[name])
    return found


def _candidates(name: str, form: NameForm) -> Iterator[str]:
    stem = _BAD_START.sub("_", _OTHER.sub("_", name))[: form.longest - _DIGITS - 1]
    texts = (f"{attempt}:{name}" if attempt else name for attempt in count())
    return (f"{stem}_{_hash(text)}" for text in texts)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRules:
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
    opaque: tuple[OpaqueParts, ...]


def resolve_references(chat: Canonical, rules: ProviderRules) -> References:
    """Find names and ids that fit, each for one thing, the same for a call and its result.

    Calls that are sent as they came keep theirs, and their results take them over.
    """
    calls = [call for message in chat.messages for call in message.tool_calls]
    names = fit_names(
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
    made = fit_names([str(call.id) for call in calls if call.id not in kept], rules.id, taken)
    ours = {
        str(call.id): Reference(id=made[str(call.id)], name=names[call.name])
        for call in calls
        if call.id not in kept
    }
    return References(names=names, calls={**kept, **ours}, opaque=opaque)


def _without_repeats(chat: Canonical, rules: ProviderRules) -> Iterator[OpaqueParts]:
    """Yield what each message sends as it came, unless it has a call whose id was there before."""
    seen: set[str] = set()
    for message in chat.messages:
        opaque = read_opaque_parts(message, rules.read)
        ids = [part.id for part in opaque.calls if part.id is not None]
        if len({*ids} - seen) < len(ids):
            yield OpaqueParts()
        else:
            seen.update(ids)
            yield opaque


def _paired(message: ChatMessage, opaque: OpaqueParts) -> Iterator[tuple[str, Reference]]:
    """Pair the calls of a message with those that are sent as they came: by id, else by place."""
    if not opaque.calls:
        return
    by_id = {part.id: part for part in opaque.calls}
    same = set(by_id) == {call.id for call in message.tool_calls}
    for place, call in enumerate(message.tool_calls):
        part = by_id[call.id] if same else opaque.calls[place]
        yield str(call.id), Reference(id=part.id, name=part.name)
