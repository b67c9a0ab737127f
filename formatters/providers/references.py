"""The names of tools and ids of calls in one request, in a form that the provider accepts."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from formatters.model import ChatMessage
from formatters.names import clean_name, fit_names
from formatters.providers.canonical import Canonical
from formatters.providers.opaque import OpaqueParts, ReadPart, read_opaque_parts
from formatters.rows import as_mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The id and the name by which a request refers to a call."""

    #: None if the provider's own call has none.
    id: str | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The names and ids of one request."""

    #: By the canonical name of a tool.
    names: Mapping[str, str]
    #: By the canonical id of a call.
    calls: Mapping[str, Reference]
    #: The messages, each with the parts that it sends unchanged.
    messages: tuple[tuple[ChatMessage, OpaqueParts], ...]


def resolve_references(
    chat: Canonical, name_form: re.Pattern[str], id_form: re.Pattern[str], read: ReadPart
) -> References:
    """Find valid, unique names and ids, the same for a call and its result.

    Calls that are sent unchanged keep their ids and names, and their results use them too. The
    provider's own parts are read with ``read``.
    """
    calls = [call for message in chat.messages for call in message.tool_calls]
    names = fit_names([str(function["name"]) for function in chat.tools], name_form)
    messages = tuple(_read_unrepeated(chat, read))
    references: dict[str, Reference] = {}
    for message, parts in messages:
        references.update(_pair_calls(message, parts))
    taken = {reference.id for reference in references.values() if reference.id is not None}
    others = [call for call in calls if call.id not in references]
    ids = fit_names([str(call.id) for call in others], id_form, taken)
    for call in others:
        # an earlier call may have the name that its tool got
        name = names.get(call.name) or clean_name(call.name, name_form)
        references[str(call.id)] = Reference(id=ids[str(call.id)], name=name)
    return References(names=names, calls=references, messages=messages)


def _read_unrepeated(chat: Canonical, read: ReadPart) -> Iterator[tuple[ChatMessage, OpaqueParts]]:
    """Yield each message with the parts that it sends unchanged; none if it repeats an id."""
    seen: set[tuple[str, str]] = set()
    for message in chat.messages:
        opaque = read_opaque_parts(message, read)
        ids = [("call", part.id) for part in opaque.calls if part.id is not None]
        items = map(as_mapping, opaque.items)
        ids += [("part", str(item["id"])) for item in items if item.get("id")]
        if len({*ids} - seen) < len(ids):
            opaque = OpaqueParts()
        else:
            seen.update(ids)
        yield message, opaque


def _pair_calls(message: ChatMessage, opaque: OpaqueParts) -> Iterator[tuple[str, Reference]]:
    """Pair the calls of a message with its parts' calls: by id if all match, else by position."""
    if not opaque.calls:
        return
    by_id = {part.id: part for part in opaque.calls}
    same_ids = set(by_id) == {call.id for call in message.tool_calls}
    for index, call in enumerate(message.tool_calls):
        part = by_id[call.id] if same_ids else opaque.calls[index]
        yield str(call.id), Reference(id=part.id, name=part.name)
