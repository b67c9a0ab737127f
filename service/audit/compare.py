"""What two builds have in common, and where they differ."""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from typing import Any, Final

from service.audit.reports import ContentReport, ReportedMessage
from service.wire.response import DecisionRecord, WarningRecord

#: The part of the usage that says what was requested; the rest is the result.
_REQUESTED: Final = ("model", "tokenizer", "exact", "budget", "reserve", "available")
_TOTALS: Final = ("tools", "total", "cacheable_prefix")
#: The lines that `unified_diff` puts before the first change.
_DIFF_HEADER: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A value of both builds; None where one of them has none."""

    name: str
    a: str | int | float | None
    b: str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChange:
    """A message of history on which the builds decided differently."""

    message_id: str
    #: None where it was no candidate.
    a: DecisionRecord | None
    b: DecisionRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChange:
    """A message that only one build sends, or that differs."""

    role: str
    #: The tag that it begins with, if any.
    block: str | None
    #: Its index in ``messages``, from 0; None where it isn't sent.
    a: int | None
    b: int | None
    #: The lines that differ, as a unified diff without context; None if a report has no texts.
    lines: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameChanges:
    """Named things that the builds don't share."""

    #: Only in b, only in a, and in both with different values.
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
    #: Settings that differ: those of the request first, then those of the workers by dotted path.
    settings: tuple[Change, ...]
    #: Tokens of every block, of the tools and in total, whether they differ or not.
    tokens: tuple[Change, ...]
    tools: NameChanges
    #: False where a build lists no decisions; ``history`` is empty then.
    explained: bool
    history: tuple[HistoryChange, ...]
    messages: tuple[MessageChange, ...]
    #: Warnings that only one of them has.
    warnings_a: tuple[WarningRecord, ...]
    warnings_b: tuple[WarningRecord, ...]


def compare(a: ContentReport, b: ContentReport) -> Comparison:
    """Compare two builds."""
    explained = _is_explained(a) and _is_explained(b)
    messages = tuple(_changed_messages(a.messages, b.messages))
    tools_a, tools_b = _tool_digests(a), _tool_digests(b)
    return Comparison(
        identical=not messages and list(tools_a.items()) == list(tools_b.items()),
        a=a.build_id,
        b=b.build_id,
        settings=(*_changed_requests(a, b), *_changed_settings(a, b)),
        tokens=tuple(_tokens(a, b)),
        tools=named_changes(tools_a, tools_b),
        explained=explained,
        history=tuple(_changed_history(a, b)) if explained else (),
        messages=messages,
        warnings_a=tuple(warning for warning in a.warnings if warning not in b.warnings),
        warnings_b=tuple(warning for warning in b.warnings if warning not in a.warnings),
    )


def named_changes(a: Mapping[str, object], b: Mapping[str, object]) -> NameChanges:
    """Compare things by their names."""
    return NameChanges(
        added=tuple(name for name in b if name not in a),
        removed=tuple(name for name in a if name not in b),
        changed=tuple(name for name in a if name in b and a[name] != b[name]),
    )


def _is_explained(build: ContentReport) -> bool:
    return bool(build.decisions) or not build.kept + build.dropped


def _changed_requests(a: ContentReport, b: ContentReport) -> Iterator[Change]:
    for name in _REQUESTED:
        one, other = getattr(a.usage, name), getattr(b.usage, name)
        if one != other:
            yield Change(name=name, a=one, b=other)


def _changed_settings(a: ContentReport, b: ContentReport) -> Iterator[Change]:
    if a.settings is None or b.settings is None:
        return
    for name in sorted({**a.settings, **b.settings}):
        one, other = (_plain(settings.get(name)) for settings in (a.settings, b.settings))
        if one != other:
            yield Change(name=name, a=one, b=other)


def _plain(value: object) -> str | int | float | None:
    return value if isinstance(value, str | int | float | None) else json.dumps(value, default=str)


def _tokens(a: ContentReport, b: ContentReport) -> Iterator[Change]:
    first, second = a.usage, b.usage
    for name in {**first.blocks, **second.blocks}:
        yield Change(name=name, a=first.blocks.get(name), b=second.blocks.get(name))
    for name in _TOTALS:
        yield Change(name=name, a=getattr(first, name), b=getattr(second, name))


def _tool_digests(build: ContentReport) -> dict[str, str]:
    return {tool.name: tool.digest for tool in build.tools}


def _changed_history(a: ContentReport, b: ContentReport) -> Iterator[HistoryChange]:
    first, second = _decisions_by_message(a), _decisions_by_message(b)
    for name in {**first, **second}:
        one, other = first.get(name), second.get(name)
        if one is None or other is None or _codes(one) != _codes(other):
            yield HistoryChange(message_id=name, a=one, b=other)


def _decisions_by_message(build: ContentReport) -> dict[str, DecisionRecord]:
    return {name: decision for decision in build.decisions for name in decision.message_ids}


def _codes(decision: DecisionRecord) -> tuple[str, str]:
    return decision.decision, decision.reason


def _changed_messages(
    a: Sequence[ReportedMessage], b: Sequence[ReportedMessage]
) -> Iterator[MessageChange]:
    for in_a, in_b in _changed_pairs(a, b):
        one = None if in_a is None else a[in_a]
        other = None if in_b is None else b[in_b]
        either = one or other
        if either is not None:
            yield MessageChange(
                role=either.role, block=either.block, a=in_a, b=in_b, lines=_diff(one, other)
            )


def _changed_pairs(
    a: Sequence[ReportedMessage], b: Sequence[ReportedMessage]
) -> Iterator[tuple[int | None, int | None]]:
    """Yield the indexes of what differs: pairs of one kind, and what only one side has."""
    digests = [[message.digest for message in side] for side in (a, b)]
    matcher = SequenceMatcher(a=digests[0], b=digests[1], autojunk=False)
    for step, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        if step != "equal":
            yield from _paired(a, b, range(a_from, a_to), range(b_from, b_to))


def _paired(
    a: Sequence[ReportedMessage], b: Sequence[ReportedMessage], in_a: range, in_b: range
) -> Iterator[tuple[int | None, int | None]]:
    """Pair messages of one role and block, in their order; what remains stays alone."""
    waiting: dict[tuple[str, str | None], deque[int]] = {}
    for index in in_b:
        waiting.setdefault((b[index].role, b[index].block), deque()).append(index)
    for index in in_a:
        alike = waiting.get((a[index].role, a[index].block))
        yield index, alike.popleft() if alike else None
    for index in sorted(index for remaining in waiting.values() for index in remaining):
        yield None, index


def _diff(one: ReportedMessage | None, other: ReportedMessage | None) -> tuple[str, ...] | None:
    if any(side is not None and side.message is None for side in (one, other)):
        return None
    a, b = (_lines(side.message or {}) if side else [] for side in (one, other))
    return tuple(unified_diff(a, b, lineterm="", n=0))[_DIFF_HEADER:]


def _lines(message: Mapping[str, Any]) -> list[str]:
    """Return a message as lines: those of its text, then its other fields as JSON."""
    text = message.get("content")
    others = {key: value for key, value in message.items() if key not in ("role", "content")}
    fields = [json.dumps({key: value}, ensure_ascii=False) for key, value in others.items()]
    return [*(text.split("\n") if isinstance(text, str) else []), *fields]
