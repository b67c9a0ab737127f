"""Select what a recall shows of the messages that were read, and write its answer."""

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Final

from formatters.fetched import FetchView, fetched, full_text
from formatters.handles import HANDLE_CHARS, make_handle, split_lines
from formatters.model import Block, Count, Entry, Facts, Message, PreviewLimit, Role, Tag
from formatters.recalled import HEADER, insert_day_lines, loose_results, make_day_line, recalled
from service.budget.counting import (
    MESSAGE_OVERHEAD,
    count_function,
    entry_tokens,
    fixed_tokens,
    last_tokens,
)
from service.budget.select_rows import (
    Forms,
    RankRows,
    make_key,
    make_narrower,
    score_forms,
    select_rows,
)
from service.budget.strategies.relevance import Relevance
from service.build.account import ShownRows
from service.build.plan import Plan
from service.build.text_search import find_in_lines, find_unfolded
from service.errors import InvalidRequestError, Problem
from service.ports.services import TokenCounter
from service.recall.ranking import find_matches
from service.wire.recall import (
    MAX_AROUND,
    MAX_IDS,
    MAX_LEFT_OUT,
    MAX_PAGE,
    MAX_TOKENS,
    RecallContent,
    RecalledMessage,
    RecallRequest,
    RecallSuccess,
    RecallUsage,
)
from service.wire.response import WarningRecord

#: A message with more than this part of an answer's tokens is shown as its beginning and its end,
#: or as the lines that match, unless it was requested by its id.
LONG_PART: Final = 4
#: The fewest tokens of such a preview.
MIN_PREVIEW: Final = 64
#: The least share of the best score that rows without a word of the query have on its first page.
#: For words that one of 62 messages has, 15 messages are shown instead of 26; in four sets of
#: bench.recall, 1,000 tokens show as much of what answers.
LEAST_SHARE: Final = 0.35
#: Ids that may be printed, of messages that are too old to be found by their handle.
PRINTABLE_ID: Final = re.compile(r"[A-Za-z0-9_.:@=+/-]{1,64}")
#: In place of messages.
NOTHING: Final = "(No messages)"
#: The longest note on how to go on from a query; and from anything else, where there may be two.
LONGEST_PAGE_NOTE: Final = "\n(more: page=20)"
LONGEST_NOTE: Final = '\n(more: around="{}", before=200, after=200)'
#: Says why the answer to a query has no message.
NO_MATCH_NOTE: Final = (
    "\n(not found: no message has a searchable word of the query;"
    " grep also searches the ends of long ones)"
)
#: Says that the answer has no message because none fits.
TOO_FEW_NOTE: Final = "\n(more tokens are needed)"

#: The most unknown ids that an answer names, and the part of its tokens that they may take.
MAX_UNKNOWN: Final = 5
UNKNOWN_PART: Final = 4

#: The changes of a recall's content with which it goes on.
Change = Mapping[str, Any]
#: The names of tools by the ids of their results.
ToolNames = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallPage:
    """What one answer shows, and how the next one goes on."""

    #: Oldest first.
    entries: Sequence[Entry] = ()
    #: Ids of messages that were searched or requested, and aren't shown.
    left_out: Sequence[str] = ()
    more: Sequence[Change] = ()
    warnings: Sequence[WarningRecord] = ()
    #: A line on the ids that mean no message, or on a query that no message matches.
    not_found: str = ""
    #: The lines that are shown of messages that are cut by lines, by id.
    lines: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Names:
    """The names of messages in an answer: handles where the next recall finds messages by them.

    Older messages are named by their ids, if these can be printed.
    """

    #: The ids of the rows that handles are looked for among; None if those are all rows.
    near: frozenset[str] | None = None

    @cached_property
    def longest(self) -> str:
        """Return the longest name, or about that."""
        printable = filter(PRINTABLE_ID.fullmatch, self.near or ())
        return max(("m" * HANDLE_CHARS, *printable), key=len)

    def of(self, row_id: str) -> str | None:
        """Return the name of a message, if it has one."""
        if self.near is None or row_id in self.near:
            return make_handle(row_id)
        return row_id if PRINTABLE_ID.fullmatch(row_id) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Selects among the messages that were read for a recall, within its tokens."""

    request: RecallRequest
    plan: Plan
    counter: TokenCounter
    names: Names
    #: The messages that aren't repeated.
    excluded: ShownRows
    max_tokens: int

    def answer(self, page: RecallPage) -> RecallSuccess:
        """Return the answer with the messages of a page."""
        text = self._text(page)
        asked = self._content.model_dump(exclude_unset=True, exclude_none=True)
        changed = ({**asked, **change} for change in page.more)
        return RecallSuccess(
            text=text,
            messages=[self._record(entry, page.lines) for entry in page.entries],
            usage=RecallUsage(
                model=self.plan.model,
                tokenizer=self.counter.name,
                exact=self.counter.exact and self.plan.exact,
                max_tokens=self.max_tokens,
                total=MESSAGE_OVERHEAD + self._count(text),
            ),
            left_out=len(page.left_out),
            left_out_ids=list(page.left_out[:MAX_LEFT_OUT]),
            next=[{k: v for k, v in each.items() if v is not None} for each in changed],
            warnings=[*self.request.warnings, *page.warnings],
        )

    def ranked(self, facts: Facts) -> RecallPage:
        """Select the rows with the highest scores, page by page up to the one that is wanted."""
        rank, block = self._ranker(facts.current_input), recalled(facts)
        entries = [*block.entries, *loose_results(facts)]
        if not entries:
            return RecallPage()
        # turns keep the rows of a run together, also where runs overlap
        order = {message.id: index for index, message in enumerate(facts.history)}
        entries.sort(key=lambda row: order[row.messages[0].id])
        rows = [*map(self._with_handles, entries)]
        forms, narrower = score_forms(rows, rank), make_narrower(rows, rank)
        passages = [form.passage for form in forms.entries if form.passage]
        matches = find_matches(facts.current_input, passages, self.plan.now)
        if not facts.similarities and not any(matches):
            return RecallPage(not_found=NO_MATCH_NOTE)
        room, page = self._room - fixed_tokens(block, self._count), self._content.page
        passed = {index for index, row in enumerate(rows) if self._is_excluded(row)}
        keys = {make_key(form) for i in passed for form in rows[i].passages or (rows[i],)}
        for number in range(page):
            ranked = forms.rank(passed, set())
            wanted = ranked if number else _list_relevant(forms, ranked, matches)
            selection = select_rows(forms, wanted, keys, room, self._count, narrower)
            passed |= selection.shown.keys()
            keys |= {make_key(forms.entries[index]) for index in selection.selected}
        chosen = [selection.shown[index] for index in sorted(selection.shown)]
        reasons = selection.explain()
        others = {forms.row_of[index] for index in ranked}.difference(reasons, selection.shown)
        more: list[Change] = []
        if others or any(reason != "repeated" for reason in reasons.values()):
            if chosen and page < MAX_PAGE:
                more = [{"page": page + 1}]
            elif not chosen:
                # pages of another size have other messages, so these begin again
                more = [{"max_tokens": self._more_tokens, **({"page": 1} if page > 1 else {})}]
        left_out = [m.id for index in sorted({*reasons, *others}) for m in rows[index].messages]
        return RecallPage(entries=chosen, left_out=left_out, more=more)

    def by_ids(
        self, messages: Sequence[Message], tools: ToolNames, unknown: Sequence[str]
    ) -> RecallPage:
        """Select messages in their order as long as they fit; the first one at least in part.

        ``unknown`` are the requested ids that no message has.
        """
        not_found = self._list_unknown(unknown)
        tokens = self._room - self._count(not_found)
        entries: list[Entry] = []
        lines: dict[str, tuple[int, int]] = {}
        more: list[Change] = []
        view, wanted = self._view(tools), self._content.lines
        wanted_lines = (wanted[0], wanted[1]) if wanted else None
        if wanted and len(messages) > 1:
            raise _lines_error(f"the id means {len(messages)} messages, and lines need one")
        room = _Room(tokens, self._count)
        taken = 0
        for message in messages:
            if wanted_lines:
                wanted_lines = _checked_lines(wanted_lines, message)
                lines[message.id] = wanted_lines
            entry = fetched(message, view, wanted_lines)
            if room.take(entry):
                entries.append(entry)
            elif entries:
                break
            elif part := self._first_lines(message, view, wanted_lines, tokens):
                first, fitting, last = part
                entries.append(fetched(message, view, (first, fitting)))
                lines[message.id] = (first, fitting)
                more.append({"ids": [message.id], "lines": [fitting + 1, last]})
                taken += 1
                break
            else:
                lines.clear()
                more.append({"max_tokens": self._more_tokens})
                break
            taken += 1
        left_out = [message.id for message in messages[taken:]]
        if entries and left_out:
            more.append(self._continue_ids(left_out))
        return RecallPage(
            entries=entries, left_out=left_out, more=more, lines=lines, not_found=not_found
        )

    def _continue_ids(self, left_out: Sequence[str]) -> Change:
        """Return the change that goes on with messages that were left out.

        More than a recall accepts are those of a summary, so they are neighbours.
        """
        if len(left_out) <= MAX_IDS:
            return {"ids": left_out, "lines": None}
        return {"ids": None, "around": left_out[0], "before": 0, "after": MAX_AROUND}

    def around(self, messages: Sequence[Message], tools: ToolNames, row_id: str) -> RecallPage:
        """Select the nearest messages on either side, as long as they fit."""
        ids = [message.id for message in messages]
        centre = ids.index(row_id) if row_id in ids else 0
        before, after = self._content.before, self._content.after
        first, last = max(centre - before, 0), min(centre + after, len(ids) - 1)
        view = self._view(tools, limited=True)
        entries = [fetched(message, view) for message in messages]
        room = _Room(self._room, self._count, entries)
        # passed over, but counted and gone on from
        hidden = {m.id for m in messages if m.role is Role.OTHER or self.excluded.has_whole(m)}
        shown_here: set[int] = set()
        #: On either side, the nearest message that isn't shown.
        missed: dict[bool, int] = {}
        for index in sorted(range(first, last + 1), key=lambda index: abs(index - centre)):
            is_newer = index > centre
            if is_newer in missed or ids[index] in hidden:
                continue
            if room.take_at(index):
                shown_here.add(index)
            elif index == centre:
                return RecallPage(left_out=[row_id], more=[{"max_tokens": self._more_tokens}])
            else:
                missed[is_newer] = index
        more: list[Change] = []
        older, newer = missed.get(False, first - 1), missed.get(True, last + 1)
        if before and older >= 0:
            more.append({"around": ids[older], "before": before, "after": 0})
        if after and newer < len(ids):
            more.append({"around": ids[newer], "before": 0, "after": after})
        left_out = [
            ids[index]
            for index in range(first, last + 1)
            if index not in shown_here and ids[index] not in hidden
        ]
        chosen = [entries[index] for index in sorted(shown_here)]
        return RecallPage(entries=chosen, left_out=left_out, more=more)

    def matches(
        self, new: Sequence[Message], tools: ToolNames, needles: Set[str], older_than: str | None
    ) -> RecallPage:
        """Select the newest matches that fit."""
        views = [self._show_match(message, tools, needles) for message in new]
        entries = [view.entry for view in views]
        room = _Room(self._room, self._count, entries)
        first = len(new)
        while first and room.take_at(first - 1):
            first -= 1
        more: list[Change] = []
        if first == len(new) > 0:
            more = [{"max_tokens": self._more_tokens}]
        elif first:
            more = [{"older_than": new[first].id}]
        elif older_than:
            more = [{"older_than": older_than}]
        shown_here = [*zip(new, views, strict=True)][first:]
        more += [
            {"ids": [message.id], "lines": [*view.rest], "grep": None, "older_than": None}
            for message, view in shown_here
            if view.rest
        ]
        return RecallPage(
            entries=entries[first:],
            left_out=[message.id for message in new[:first]],
            more=more,
            lines={message.id: view.lines for message, view in shown_here if view.lines},
        )

    def _text(self, page: RecallPage) -> str:
        block = replace(_BLOCK, entries=insert_day_lines(page.entries))
        notes = "".join(map(self._note, page.more))
        # the ids in notes may be long, and counts may be raised so that not even the header fits
        texts = [block.text + page.not_found + notes, block.text]
        if not page.entries:
            texts = [texts[0], NOTHING + page.not_found + notes, NOTHING + notes, NOTHING]
        fitting = (t for t in texts if MESSAGE_OVERHEAD + self._count(t) <= self.max_tokens)
        return next(fitting, "")

    def _note(self, change: Change) -> str:
        """Return a line for the model on how to go on; none where it can't name the message."""
        if "grep" in change:  # the row names the line of its next match
            return ""
        if "max_tokens" in change:  # which is not the model's to change
            return TOO_FEW_NOTE
        ids: Sequence[str] = change.get("ids") or ()
        if len(ids) > 1 or (ids and change["lines"] is None):
            name = self.names.of(ids[0])
            if name and not {ids[0], name}.intersection(self._content.ids or ()):  # of a summary
                return f'\n(more: around="{name}", before=0, after={len(ids) - 1})'
            return f"\n(more: {len(ids)} of the ids)"
        arguments = {key: value for key, value in change.items() if value is not None}
        for key in {"around", "older_than", "ids"} & arguments.keys():
            name = self.names.of(ids[0] if ids else change[key])
            if name is None:
                return ""
            arguments[key] = [name] if ids else name
        return f"\n(more: {', '.join(f'{k}={json.dumps(v)}' for k, v in arguments.items())})"

    def _record(self, entry: Entry, lines: Mapping[str, tuple[int, int]]) -> RecalledMessage:
        first = entry.messages[0]
        return RecalledMessage(
            message_ids=[message.id for message in entry.messages],
            handle=self.names.of(first.id) or first.id,
            role=first.role.value,
            timestamp=first.timestamp,
            text=entry.text.strip(),
            whole=not entry.reasons,
            lines=lines.get(first.id),
        )

    def _ranker(self, query: str) -> RankRows:
        strategy, now = self.plan.strategy, self.plan.now
        if not isinstance(strategy, Relevance) or (rank := strategy.rank) is None:
            raise InvalidRequestError("there is no ranker for a query")
        return lambda passages: rank(query, passages, now)

    def _is_excluded(self, entry: Entry) -> bool:
        """Return whether a row was shown whole; its results that aren't printed don't count."""
        role = entry.messages[0].role
        return all(self.excluded.has_whole(m) for m in entry.messages if m.role is role)

    def _with_handles(self, row: Entry) -> Entry:
        """Return a row with a handle in all its forms that need one."""
        mark, join, split = self._with_handle, row.join, row.split
        if split:
            row = replace(row, split=lambda chars: tuple(map(mark, split(chars))))
        if join is None:
            return mark(row)
        passages = tuple(map(mark, row.passages))
        return replace(row, passages=passages, join=lambda indices: mark(join(indices)))

    def _with_handle(self, entry: Entry) -> Entry:
        """Return a form of a row with why it isn't whole, and with a handle if it needs one.

        The handle is that of its first message that is cut; of calls mostly a part is shown.
        """
        cut = [
            message.id
            for message in entry.messages
            if entry.reasons.get(message.id) in _CUT or message.tool_calls
        ]
        reasons = {m.id: "partial" for m in entry.messages if m.partial or m.id in cut}
        named = cut or ([entry.messages[0].id] if self._content.with_ids else [])
        text = entry.text
        if named and (name := self.names.of(named[0])):
            speaker, colon, said = text.partition(":")
            text = f"{speaker} [{name}]{colon}{said}"
        return replace(entry, text=text, reasons=reasons)

    def _list_unknown(self, names: Sequence[str]) -> str:
        """Return a line for the model that names or counts unknown ids, if it takes few tokens."""
        if not names:
            return ""
        texts = [f"\n(not found: {len(names)} of the ids)"]
        if len(names) <= MAX_UNKNOWN and all(map(PRINTABLE_ID.fullmatch, names)):
            texts.insert(0, f"\n(not found: {', '.join(names)})")
        most = self.max_tokens // UNKNOWN_PART
        return next((text for text in texts if self._count(text) <= most), "")

    def _first_lines(
        self, message: Message, view: FetchView, wanted: tuple[int, int] | None, tokens: int
    ) -> tuple[int, int, int] | None:
        """Return the first wanted line, the last that fits, and the last wanted; None if none."""
        first, last = wanted or (1, len(split_lines(full_text(message))))
        best, low, high = 0, first, last - 1
        while low <= high:
            middle = (low + high) // 2
            if _Room(tokens, self._count).take(fetched(message, view, (first, middle))):
                best, low = middle, middle + 1
            else:
                high = middle - 1
        return (first, best, last) if best else None

    def _show_match(self, message: Message, tools: ToolNames, needles: Set[str]) -> "_Match":
        """Show a message that contains a text; of a long one the lines around its first match."""
        view, most = self._view(tools), self._preview_tokens
        entry = fetched(message, view)
        if last_tokens(entry, self._count) <= most:
            return _Match(entry)
        lines = split_lines(full_text(message))
        hits = find_in_lines(lines, needles)
        if not hits:  # a character's parts are on two lines
            return _Match(fetched(message, self._view(tools, limited=True)))
        hit, number = hits[0], len(lines)
        final = min(max(each.last for each in hits) + 1, number)
        for near in (1, 0):
            around = max(hit.first - near, 1), min(hit.last + near, number)
            later = next((each.first for each in hits if each.last > around[1]), None)
            entry = fetched(message, view, around, next_match=later)
            if last_tokens(entry, self._count) <= most:
                start = max((later or 0) - 1, around[1] + 1)
                return _Match(entry, around, (start, final) if later else None)
        text, best = "".join(lines[hit.first - 1 : hit.last]), entry
        begin, end = find_unfolded(text, hit)
        low, high = 0, len(text)
        while low <= high:
            margin = (low + high) // 2
            chars = max(begin - margin, 0), min(end + margin, len(text))
            entry = fetched(message, view, around, chars=chars)
            if not margin or last_tokens(entry, self._count) <= most:
                best, low = entry, margin + 1
            else:
                high = margin - 1
        return _Match(best, None, (hit.first, final))

    def _view(self, tools: ToolNames, *, limited: bool = False) -> FetchView:
        limit = PreviewLimit(self._preview_tokens, self._count) if limited else None
        memory = self.plan.memory
        return FetchView(
            guard=self.plan.guard,
            minutes_west=memory.minutes_west,
            assistant_name=memory.assistant_name,
            name=self.names.of,
            tools=tools,
            limit=limit,
        )

    @property
    def _preview_tokens(self) -> int:
        return max(self._room // LONG_PART, MIN_PREVIEW)

    @property
    def _room(self) -> int:
        """Return the tokens for a block of messages, without the notes."""
        notes = LONGEST_PAGE_NOTE
        if self._content.query is None:
            notes = 2 * LONGEST_NOTE.format(self.names.longest)
        return self.max_tokens - self._count(notes)

    @property
    def _more_tokens(self) -> int:
        """Return the tokens to retry with if nothing fits."""
        return min(2 * self.max_tokens, MAX_TOKENS)

    @property
    def _content(self) -> RecallContent:
        return self.request.content

    @property
    def _count(self) -> Count:
        return count_function(self.counter)


#: The reasons of messages that are shown in part.
_CUT: Final = frozenset({"message_chars", "passages"})

#: The block of an answer, without its messages.
_BLOCK: Final = Block(
    tag=Tag.RECALLED, header=HEADER, placeholder=NOTHING, entries=(), additive=True
)


@dataclass(frozen=True, slots=True)
class _Match:
    """A message that contains a text, as it is shown."""

    entry: Entry
    #: The lines that are shown, if it isn't all of them.
    lines: tuple[int, int] | None = None
    #: The lines from the next match on to the last, if these don't show all matches.
    rest: tuple[int, int] | None = None


class _Room:
    """The tokens that messages may still take, each with a line for its day where that changes."""

    def __init__(self, tokens: int, count: Count, entries: Sequence[Entry] = ()) -> None:
        """Begin with ``tokens`` for a block; ``entries`` are what `take_at` takes from."""
        self._count = count
        self._entries = entries
        # runs of messages of one day: each needs a line for it, at most
        changes = (one.day != other.day for one, other in pairwise(entries))
        self._runs = [*accumulate(changes, initial=0)]
        self._open: set[object] = set()
        # with room for any number of messages in the header
        largest = replace(_BLOCK, entries=(Entry(text="", rows=999_999),))
        self._left = tokens - fixed_tokens(largest, count)

    def take(self, entry: Entry) -> bool:
        """Take an entry that follows the last one, if it fits."""
        return self._take(entry, entry.day)

    def take_at(self, index: int) -> bool:
        """Take one of the entries, if it fits."""
        return self._take(self._entries[index], self._runs[index])

    def _take(self, entry: Entry, run: object) -> bool:
        tokens = max(entry_tokens(entry, self._count), last_tokens(entry, self._count))
        if run not in self._open:
            tokens += entry_tokens(make_day_line(entry.day), self._count)
        if tokens > self._left:
            return False
        self._left -= tokens
        self._open.add(run)
        return True


def _list_relevant(forms: Forms, ranked: Sequence[int], matches: Sequence[bool]) -> Sequence[int]:
    """Return the forms of the first page, which leaves tokens unused rather than show any row."""
    scores = forms.scores
    least = LEAST_SHARE * max((scores[index] for index in ranked), default=0.0)
    return [index for index in ranked if matches[index] or scores[index] >= least]


def _checked_lines(wanted: tuple[int, int], message: Message) -> tuple[int, int]:
    """Return the wanted lines of a message that it has; raises `InvalidRequestError`."""
    number = len(split_lines(full_text(message)))
    if wanted[0] > number:
        raise _lines_error(f"the message has {number} lines")
    return wanted[0], min(wanted[1], number)


def _lines_error(detail: str) -> InvalidRequestError:
    return InvalidRequestError(f"/content/lines: {detail}", [Problem("/content/lines", detail)])
