"""What two builds have in common, and where they differ."""

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from typing import Any, Final

from service.wire.response import BuildSuccess, DecisionRecord, WarningRecord

#: A tag of ours at the very beginning of a message, as in ``[SHARED_MEMORY count=3]``.
TAG: Final = re.compile(r"\[([A-Z][A-Z0-9_]*)(?: [a-z]+=[^\]\n]*)?\]")

#: The part of the usage that says what was asked for; the rest says what came of it.
SETTINGS: Final = ("model", "tokenizer", "exact", "budget", "reserve", "available")

#: The lines that `unified_diff` puts before the first change.
_HEAD: Final = 2

JsonMessage = Mapping[str, Any]
#: A message as it is told from others: its kind, and what stands for all of it.
Sent = tuple[object, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A value that both builds have; None where one of them lacks it."""

    name: str
    a: str | int | None
    b: str | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChange:
    """A message of history that was decided on otherwise."""

    message_id: str
    #: None where it was no candidate.
    a: DecisionRecord | None
    b: DecisionRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChange:
    """A message that only one build sends, or that both send with other words."""

    role: str
    #: The tag that it opens with, if any.
    block: str | None
    #: Its place in ``messages``, from 0; None where it isn't sent.
    a: int | None
    b: int | None
    #: The lines that differ, as a unified diff without context.
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameChanges:
    """Named things of which the builds don't have the same."""

    #: Only in b, only in a, and in both, but not alike.
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two builds, side by side."""

    #: Whether they send the same messages and tools.
    identical: bool
    #: Their build ids.
    a: str
    b: str
    #: Settings that differ.
    settings: tuple[Change, ...]
    #: Tokens of every block, of the tools and of it all, alike or not.
    tokens: tuple[Change, ...]
    tools: NameChanges
    #: False where a build lists no decisions; ``history`` is empty then.
    explained: bool
    history: tuple[HistoryChange, ...]
    messages: tuple[MessageChange, ...]
    #: Warnings that only one of them has.
    warnings_a: tuple[WarningRecord, ...]
    warnings_b: tuple[WarningRecord, ...]


def compare(a: BuildSuccess, b: BuildSuccess) -> Comparison:
    """Compare two builds."""
    explained = _is_explained(a) and _is_explained(b)
    return Comparison(
        identical=a.messages == b.messages and a.tools == b.tools,
        a=a.build_id,
        b=b.build_id,
        settings=tuple(change for change in _settings(a, b) if change.a != change.b),
        tokens=tuple(_tokens(a, b)),
        tools=named_changes(_tools(a), _tools(b)),
        explained=explained,
        history=tuple(_history(a, b)) if explained else (),
        messages=tuple(_messages(a.messages, b.messages)),
        warnings_a=tuple(each for each in a.warnings if each not in b.warnings),
        warnings_b=tuple(each for each in b.warnings if each not in a.warnings),
    )


def named_changes(a: Mapping[str, object], b: Mapping[str, object]) -> NameChanges:
    """Compare things by their names."""
    return NameChanges(
        added=tuple(name for name in b if name not in a),
        removed=tuple(name for name in a if name not in b),
        changed=tuple(name for name in a if name in b and a[name] != b[name]),
    )


def aligned(a: Sequence[Sent], b: Sequence[Sent]) -> Iterator[tuple[int | None, int | None]]:
    """Yield the places of what differs: pairs of one kind, and what one side lacks."""
    matcher = SequenceMatcher(a=[key for _, key in a], b=[key for _, key in b], autojunk=False)
    for step, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        if step != "equal":
            yield from _paired(a, b, range(a_from, a_to), range(b_from, b_to))


def block_of(message: JsonMessage) -> str | None:
    """Return the tag that a message opens with."""
    tag = TAG.match(str(message.get("content") or ""))
    return tag[1] if tag else None


def _is_explained(build: BuildSuccess) -> bool:
    return bool(build.decisions) or not build.kept + build.dropped


def _settings(a: BuildSuccess, b: BuildSuccess) -> Iterator[Change]:
    for name in SETTINGS:
        yield Change(name=name, a=getattr(a.usage, name), b=getattr(b.usage, name))


def _tokens(a: BuildSuccess, b: BuildSuccess) -> Iterator[Change]:
    first, second = a.usage, b.usage
    for name in {**first.blocks, **second.blocks}:
        yield Change(name=name, a=first.blocks.get(name), b=second.blocks.get(name))
    for name in ("tools", "total", "cacheable_prefix"):
        yield Change(name=name, a=getattr(first, name), b=getattr(second, name))


def _tools(build: BuildSuccess) -> dict[str, object]:
    return {str(tool.get("function", {}).get("name")): tool for tool in build.tools}


def _history(a: BuildSuccess, b: BuildSuccess) -> Iterator[HistoryChange]:
    first, second = _fates(a), _fates(b)
    for name in {**first, **second}:
        one, other = first.get(name), second.get(name)
        if one is None or other is None or _code(one) != _code(other):
            yield HistoryChange(message_id=name, a=one, b=other)


def _fates(build: BuildSuccess) -> dict[str, DecisionRecord]:
    return {name: decision for decision in build.decisions for name in decision.message_ids}


def _code(decision: DecisionRecord) -> tuple[str, str]:
    return decision.decision, decision.reason


def _messages(a: Sequence[JsonMessage], b: Sequence[JsonMessage]) -> Iterator[MessageChange]:
    for pair in aligned(_sent(a), _sent(b)):
        yield _message_change(a, b, *pair)


def _sent(messages: Sequence[JsonMessage]) -> list[Sent]:
    return [
        ((message.get("role"), block_of(message)), json.dumps(message, sort_keys=True))
        for message in messages
    ]


def _paired(
    a: Sequence[Sent], b: Sequence[Sent], in_a: range, in_b: range
) -> Iterator[tuple[int | None, int | None]]:
    """Pair messages of one kind, in their order; what is left over stays alone."""
    waiting: dict[object, deque[int]] = {}
    for place in in_b:
        waiting.setdefault(b[place][0], deque()).append(place)
    for place in in_a:
        alike = waiting.get(a[place][0])
        yield place, alike.popleft() if alike else None
    for place in sorted(place for left in waiting.values() for place in left):
        yield None, place


def _message_change(
    a: Sequence[JsonMessage], b: Sequence[JsonMessage], in_a: int | None, in_b: int | None
) -> MessageChange:
    one = {} if in_a is None else a[in_a]
    other = {} if in_b is None else b[in_b]
    lines = list(unified_diff(_lines(one), _lines(other), lineterm="", n=0))
    return MessageChange(
        role=str((one or other).get("role")),
        block=block_of(one or other),
        a=in_a,
        b=in_b,
        lines=tuple(lines[_HEAD:]),
    )


def _lines(message: JsonMessage) -> list[str]:
    """Return a message as lines: what it says, then whatever else it holds as JSON."""
    said = message.get("content")
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    more = [json.dumps({key: value}, ensure_ascii=False) for key, value in rest.items()]
    return [*(said.split("\n") if isinstance(said, str) else []), *more]
