"""Compare two builds."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from formatters.model import Tag
from service.audit.reports import BuildReport, ContentMode, ContentReport, ReportedMessage
from service.wire.response import DecisionRecord, WarningRecord

#: The part of the usage that says what was requested; the rest is the result.
_REQUESTED: Final = ("model", "tokenizer", "exact", "budget", "reserve", "available")
_TOTALS: Final = ("tools", "total", "cacheable_prefix")
#: Options of a request that the usage, the strategy or the layout have already, or that change
#: nothing in the messages.
_KNOWN_OPTIONS: Final = frozenset(
    {"model", "max_tokens", "reserve_tokens", "strategy", "layout", "memory_limit", "explain"}
)
#: The blocks of history, one for each layout.
_HISTORY: Final = frozenset({Tag.SHARED_MEMORY, Tag.HISTORY})
#: The lines that `unified_diff` puts before the first change.
_DIFF_HEADER: Final = 2

#: A message and its index in its build, from 0.
_Placed = tuple[int, ReportedMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A value of both builds; None where one of them has none."""

    name: str
    a: str | bool | int | float | None
    b: str | bool | int | float | None


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
    #: How many lines only b has, and only a; None if a report has no texts.
    added: int | None
    removed: int | None
    #: Those lines, as a unified diff without context; None if they may not be shown, too.
    lines: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameChanges:
    """Named things that the builds don't share."""

    #: Only in b, only in a, and in both with different values.
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


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
    #: The numbers of rows by decision, whether they differ or not.
    outcomes: tuple[Change, ...]
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
    #: Whether the lines of messages are shown.
    content: ContentMode


def compare(a: ContentReport, b: ContentReport, content: ContentMode = "full") -> Comparison:
    """Compare two builds; without the lines of their messages if ``content`` is ``redacted``."""
    explained = all(build.decisions or not any(build.outcomes.values()) for build in (a, b))
    settings = [*_differing(_REQUESTED, dict(a.usage), dict(b.usage))]
    if isinstance(a, BuildReport) and isinstance(b, BuildReport):
        # parameters of different strategies don't correspond to each other
        is_same = a.strategy.get("name") == b.strategy.get("name")
        chosen_a, chosen_b = (_chosen(each, parameters=is_same) for each in (a, b))
        settings += _differing({**chosen_a, **chosen_b}, chosen_a, chosen_b)
    if a.settings is not None and b.settings is not None:
        names = sorted({**a.settings, **b.settings})
        settings += _differing(names, a.settings, b.settings)
    messages = tuple(_changed_messages(a.messages, b.messages, content))
    tools_a, tools_b = ({tool.name: tool.digest for tool in build.tools} for build in (a, b))
    return Comparison(
        identical=not messages and list(tools_a.items()) == list(tools_b.items()),
        a=a.build_id,
        b=b.build_id,
        settings=tuple(settings),
        outcomes=tuple(
            Change(name=name, a=a.outcomes.get(name, 0), b=b.outcomes.get(name, 0))
            for name in {**a.outcomes, **b.outcomes}
        ),
        tokens=tuple(_tokens(a, b)),
        tools=NameChanges(
            added=tuple(name for name in tools_b if name not in tools_a),
            removed=tuple(name for name in tools_a if name not in tools_b),
            changed=tuple(
                name for name in tools_a if tools_b.get(name, tools_a[name]) != tools_a[name]
            ),
        ),
        explained=explained,
        history=tuple(_changed_history(a, b)) if explained else (),
        messages=messages,
        warnings_a=tuple(warning for warning in a.warnings if warning not in b.warnings),
        warnings_b=tuple(warning for warning in b.warnings if warning not in a.warnings),
        content=content,
    )


def _chosen(build: BuildReport, *, parameters: bool) -> Mapping[str, object]:
    """Return the options that shaped a build besides its window, defaults of some included."""
    strategy = {f"strategy.{name}": value for name, value in build.strategy.items()}
    name = strategy.pop("strategy.name", None)
    options = build.request.model_dump(mode="json", include={"options"})["options"]
    return {
        "strategy": name,
        **(strategy if parameters else {}),
        "layout": build.layout,
        "memory_limit": build.read.limit,
        **{name: options[name] for name in sorted(options.keys() - _KNOWN_OPTIONS)},
    }


def _differing(
    names: Iterable[str], a: Mapping[str, object], b: Mapping[str, object]
) -> Iterator[Change]:
    for name in names:
        one, other = (
            value if isinstance(value, str | int | float | None) else json.dumps(value, default=str)
            for value in (a.get(name), b.get(name))
        )
        if one != other:
            yield Change(name=name, a=one, b=other)


def _tokens(a: ContentReport, b: ContentReport) -> Iterator[Change]:
    first, second = a.usage, b.usage
    blocks_a, blocks_b = first.blocks, second.blocks
    if blocks_a.keys() & _HISTORY != blocks_b.keys() & _HISTORY:  # of different layouts
        blocks_a, blocks_b = _with_one_history(blocks_a), _with_one_history(blocks_b)
    for name in {**blocks_a, **blocks_b}:
        yield Change(name=name, a=blocks_a.get(name), b=blocks_b.get(name))
    for name in _TOTALS:
        yield Change(name=name, a=getattr(first, name), b=getattr(second, name))


def _with_one_history(blocks: Mapping[str, int]) -> dict[str, int]:
    return {Tag.HISTORY if tag in _HISTORY else tag: size for tag, size in blocks.items()}


def _changed_history(a: ContentReport, b: ContentReport) -> Iterator[HistoryChange]:
    first, second = _decisions_by_message(a), _decisions_by_message(b)
    for name in {**first, **second}:
        one, other = first.get(name), second.get(name)
        if outcome_of(one) != outcome_of(other):
            yield HistoryChange(message_id=name, a=one, b=other)


def _decisions_by_message(build: ContentReport) -> dict[str, DecisionRecord]:
    return {name: decision for decision in build.decisions for name in decision.message_ids}


def outcome_of(decision: DecisionRecord | None) -> tuple[str, str] | None:
    """Return the decision and its reason, without the rest of the record."""
    return (decision.decision, decision.reason) if decision else None


def _changed_messages(
    a: Sequence[ReportedMessage], b: Sequence[ReportedMessage], content: ContentMode
) -> Iterator[MessageChange]:
    digests = [[message.digest for message in side] for side in (a, b)]
    in_a, in_b = list(enumerate(a)), list(enumerate(b))
    matcher = SequenceMatcher(a=digests[0], b=digests[1], autojunk=False)
    for step, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        if step != "equal":
            for one, other in _paired(in_a[a_from:a_to], in_b[b_from:b_to]):
                yield _message_change(one, other, content)


def _paired(
    a: Sequence[_Placed], b: Sequence[_Placed]
) -> Iterator[tuple[_Placed | None, _Placed | None]]:
    """Pair messages of one role and block, in their order; what remains stays alone."""
    waiting: dict[tuple[str, str | None], deque[_Placed]] = {}
    for index, message in b:
        waiting.setdefault((message.role, message.block), deque()).append((index, message))
    for index, message in a:
        alike = waiting.get((message.role, message.block))
        yield (index, message), alike.popleft() if alike else None
    for other in sorted(chain(*waiting.values()), key=itemgetter(0)):
        yield None, other


def _message_change(a: _Placed | None, b: _Placed | None, content: ContentMode) -> MessageChange:
    sides = [side[1] for side in (a, b) if side]
    lines = None
    if all(message.message is not None for message in sides):
        in_a, in_b = (_lines(side[1].message or {}) if side else [] for side in (a, b))
        lines = tuple(unified_diff(in_a, in_b, lineterm="", n=0))[_DIFF_HEADER:]
    return MessageChange(
        role=sides[0].role,
        block=sides[0].block,
        a=a and a[0],
        b=b and b[0],
        added=None if lines is None else sum(line.startswith("+") for line in lines),
        removed=None if lines is None else sum(line.startswith("-") for line in lines),
        lines=lines if content == "full" else None,
    )


def _lines(message: Mapping[str, Any]) -> list[str]:
    """Return a message as lines: those of its text, then its other fields as JSON."""
    text = message.get("content")
    others = {key: value for key, value in message.items() if key not in ("role", "content")}
    fields = [json.dumps({key: value}, ensure_ascii=False) for key, value in others.items()]
    return [*(text.split("\n") if isinstance(text, str) else []), *fields]
