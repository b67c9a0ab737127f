"""Select rows of older turns by their scores: whole, or the passages of long ones."""

import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter, ne
from typing import Final, NamedTuple

from formatters.model import Count, Entry, Passage, Role
from formatters.passages import GAP
from formatters.recalled import LEAST_CHARS, make_day_line
from service.budget.counting import MAX_CHARS_PER_TOKEN, entry_cost, entry_tokens
from service.budget.groups import explain_ranking

#: Rows that don't fit, with none that does between them, after which no more are tried.
MAX_MISSES: Final = 100
#: The share of its score that a passage has in the ranking if a better one is of the same row:
#: bench/recall/README.md.
FURTHER_SHARE: Final = 0.8
#: The least share of the best passage's score that the passages next to it in a code block have.
#: It is below `FURTHER_SHARE`, so that another passage that answers comes before them.
BESIDE_SHARE: Final = 0.75

#: The passages of each row that are ranked if all rows have more than the second number together:
#: caches have room for several such histories.
FEW_PASSAGES: Final = 40
MANY_PASSAGES: Final = 1_000

#: The least tokens for a narrower passage of a row that doesn't fit, and the most rows of which one
#: is tried. Only while nothing is selected: later ones cost more than they gain.
NARROW_TOKENS: Final = 30
MAX_NARROWED: Final = 3
#: The characters by which such a passage is known where it is shown anyway.
BEGINNING_CHARS: Final = 50

#: What may differ at the end of texts that say the same.
_ENDINGS: Final = ".!, "

#: Score the rows that may be recalled by their relevance to the current input.
RankRows = Callable[[Sequence[Passage]], Sequence[float]]
#: Return the best passage of a row, by its index, that is narrower than its forms; None without
#: one.
FindNarrower = Callable[[int], Entry | None]


class Forms(NamedTuple):
    """What rows may be shown as: of a long row one form for each passage, else the row itself."""

    rows: Sequence[Entry]
    entries: Sequence[Entry]
    scores: Sequence[float]
    #: The row of each form, by its index.
    row_of: Sequence[int]

    def rank(self, excluded: Set[int], continued: Set[int]) -> list[int]:
        """Return the indices of forms, the best first; of rows with equal scores the newer.

        Rows that are ``excluded`` have none, and ``continued`` ones only those of later passages.
        """
        newest_first = self._list_newest_first(excluded, continued)
        # sorting keeps the order of what is equal
        ranked = sorted(newest_first, key=self.scores.__getitem__, reverse=True)
        if not self.has_passages:
            return ranked
        shares = self._find_shares(ranked)
        return sorted(ranked, key=shares.__getitem__, reverse=True)

    def _find_shares(self, ranked: Sequence[int]) -> Mapping[int, float]:
        """Return the scores of forms in the ranking: of those that aren't the best of a row, less.

        Code says little without what is around it: in a code block, the forms next to the best
        one have at least a share of its score.
        """
        least = min(0.0, *self.scores)  # shares are of what is above it
        shares = {index: FURTHER_SHARE * (self.scores[index] - least) for index in ranked}
        for index in self.find_best(ranked).values():
            shares[index] = self.scores[index] - least
            for beside, later in ((index - 1, index), (index + 1, index + 1)):
                if beside in shares and continues_code(self.entries[later]):
                    shares[beside] = max(shares[beside], BESIDE_SHARE * shares[index])
        return shares

    def _list_newest_first(self, excluded: Set[int], continued: Set[int]) -> list[int]:
        row_of = self.row_of
        if not self.has_passages:
            return [row for row in reversed(row_of) if row not in excluded]
        return [
            index
            for index in sorted(range(len(row_of)), key=row_of.__getitem__, reverse=True)
            if row_of[index] not in excluded
            and (row_of[index] not in continued or continues(self.entries[index]))
        ]

    @property
    def has_passages(self) -> bool:
        """Return whether a row has several forms."""
        return len(self.entries) > len(self.rows)

    def find_best(self, ranked: Sequence[int]) -> dict[int, int]:
        """Return the first form of each row in a ranking, by its row; the best row comes first."""
        if not self.has_passages:
            return dict(zip(ranked, ranked, strict=True))
        best: dict[int, int] = {}
        for index in ranked:
            best.setdefault(self.row_of[index], index)
        return best

    def show(self, chosen: Sequence[int]) -> Entry:
        """Return the entry that shows the chosen forms of one row, given by their indices."""
        row = self.rows[self.row_of[chosen[0]]]
        if len(chosen) == 1 or row.join is None:
            return self.entries[chosen[0]]
        first = bisect_left(self.row_of, self.row_of[chosen[0]])
        return row.join([index - first for index in sorted(chosen)])


def continues(form: Entry) -> bool:
    """Return whether a form of a row shows another part than its beginning."""
    return form.passage is not None and form.passage.continues


def continues_code(form: Entry) -> bool:
    """Return whether a form of a row continues a code block of the form before it."""
    return form.passage is not None and form.passage.continues_code


def score_forms(rows: Sequence[Entry], rank: RankRows) -> Forms:
    """Score the forms of rows."""
    if not any(map(attrgetter("passages"), rows)):
        scores = rank([row.passage for row in rows if row.passage])
        return Forms(rows, rows, scores, range(len(rows)))
    entries: list[Entry] = []
    row_of: list[int] = []
    most = FEW_PASSAGES if sum([len(row.passages) for row in rows]) > MANY_PASSAGES else None
    for index, row in enumerate(rows):
        forms = row.passages[:most] or (row,)
        entries += forms
        row_of += [index] * len(forms)
    scores = rank([form.passage for form in entries if form.passage])
    return Forms(rows, entries, scores, row_of)


@dataclass(slots=True)
class RowSelection:
    """The rows that fit together, and why others weren't selected."""

    forms: Forms
    #: The indices of forms, in the order in which they are tried.
    ranked: Sequence[int]
    room: int
    count: Count
    #: The rows that are selected, by their indices, as they are shown.
    shown: dict[int, Entry] = field(default_factory=dict)
    #: The tokens of each row that was counted, at most, without a line for its day.
    tokens: dict[int, int] = field(default_factory=dict)
    #: The forms that are selected, by their indices.
    selected: set[int] = field(default_factory=set)
    #: Those that repeat another row that is shown.
    repeated: set[int] = field(default_factory=set)
    #: Those that don't fit even alone.
    too_long: set[int] = field(default_factory=set)
    _remaining: int = field(init=False)
    #: For each row the run of rows of one day that it is in, and the runs with a line for the day.
    #: A day may need several: only if no row between two of its runs is selected, one is enough.
    _runs: Sequence[int] = field(init=False)
    _opened: set[int] = field(default_factory=set)
    #: The selected forms of each row, and those that were added to a row that had one, in order.
    _chosen: dict[int, list[int]] = field(default_factory=dict)
    _further: list[int] = field(default_factory=list)
    #: The rows that have got a form since they were counted.
    _grown: set[int] = field(default_factory=set)
    #: The rows of which a narrower passage was tried.
    _narrowed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        days = [row.day for row in self.forms.rows]
        self._runs = [*accumulate(map(ne, days, days[1:]), initial=0)]
        self._remaining = self.room

    def add(self, index: int, narrower: Entry | None = None) -> bool:
        """Select a form, or a narrower one of its row, if it fits; return whether it does."""
        form, row = narrower or self.forms.entries[index], self.forms.row_of[index]
        if row in self.shown and row in self._narrowed:
            return False
        least = -(-len(form.text) // MAX_CHARS_PER_TOKEN)
        if least > self._remaining and not self._make_room(index, least):
            return False
        tokens, run = most_tokens(form, self.count), self._runs[row]
        self.tokens.setdefault(row, tokens)
        needed = tokens
        if run not in self._opened:
            needed += entry_tokens(make_day_line(form.day), self.count)
        if needed > self._remaining and not self._make_room(index, needed):
            return False
        self._remaining -= needed
        self._opened.add(run)
        self.selected.add(index)
        if row in self.shown:
            # counted alone at first, which is more than it adds to the row
            self.tokens[row] += tokens
            self._chosen[row].append(index)
            self._further.append(index)
            self._grown.add(row)
        else:
            self.shown[row], self.tokens[row], self._chosen[row] = form, tokens, [index]
        return True

    def narrow(self, index: int, find_narrower: FindNarrower) -> bool:
        """Select a narrower passage of a form's row if it fits; return whether it does."""
        row = self.forms.row_of[index]
        is_tried = row in self._narrowed or len(self._narrowed) == MAX_NARROWED
        if is_tried or self._remaining < NARROW_TOKENS:
            return False
        self._narrowed.add(row)
        passage = find_narrower(row)
        return passage is not None and self.add(index, passage)

    def _make_room(self, index: int, tokens: int) -> bool:
        """Join forms, which may leave more room, and return whether it is enough for a form."""
        if self._grown:
            self._join_forms()
        if tokens > self.room:
            self.too_long.add(index)
        return tokens <= self._remaining

    def _join_forms(self) -> None:
        """Count the rows that have several forms as they are shown."""
        for row in self._grown:
            entry = self.forms.show(self._chosen[row])
            tokens = most_tokens(entry, self.count)
            self._remaining += self.tokens[row] - tokens
            self.shown[row], self.tokens[row] = entry, tokens
        self._grown.clear()

    def finish(self) -> None:
        """Join the forms of each row; if that takes more tokens than there are, take some back."""
        self._join_forms()
        while self._remaining < 0 and self._further:
            index = self._further.pop()
            row = self.forms.row_of[index]
            self.selected.remove(index)
            key = make_key(self.forms.entries[index])
            self.repeated -= {i for i in self.repeated if make_key(self.forms.entries[i]) == key}
            self._chosen[row].remove(index)
            self._grown.add(row)
            self._join_forms()

    def list_tokens(self, more: int) -> dict[int, int]:
        """Return the tokens of the rows that were counted, and of the best ``more`` others."""
        best = self.forms.find_best(self.ranked).items()
        uncounted = [(row, index) for row, index in best if row not in self.tokens][:more]
        entries = self.forms.entries
        counted = {row: entry_tokens(entries[index], self.count) for row, index in uncounted}
        return self.tokens | counted

    def explain(self) -> dict[int, str]:
        """Return why rows weren't selected, by their indices: because of their best form.

        A form that repeats another row doesn't count, unless all of them do.
        """
        distinct = [index for index in self.ranked if index not in self.repeated]
        reasons = explain_ranking(distinct, self.selected, self.too_long)
        best = self.forms.find_best(distinct)
        return {
            row: reasons[best[row]] if row in best else "repeated"
            for row in self.forms.find_best(self.ranked)
            if row not in self.shown
        }


def select_rows(
    forms: Forms,
    ranked: Sequence[int],
    shown_keys: Set[tuple[Role | None, str]],
    room: int,
    count: Count,
    find_narrower: FindNarrower = lambda _: None,
) -> RowSelection:
    """Select rows, or passages of them, that fit together into ``room`` tokens.

    ``ranked`` has indices of forms, the first to be selected first, ``shown_keys`` the keys of
    texts that are shown anyway. ``find_narrower`` is asked for a passage of the best row if none
    of its forms fits.
    """
    selection = RowSelection(forms, ranked, room, count)
    known_keys, missed, shown = set(shown_keys), set[int](), selection.shown
    for index in ranked:
        if len(missed) == MAX_MISSES:
            break
        key = make_key(forms.entries[index])
        if key in known_keys:
            selection.repeated.add(index)
        elif selection.add(index) or (not shown and selection.narrow(index, find_narrower)):
            known_keys.add(key)
            missed.clear()
        else:
            missed.add(forms.row_of[index])
    selection.finish()
    return selection


def make_narrower(
    rows: Sequence[Entry], rank: RankRows, find_shown: Callable[[], str] = str
) -> FindNarrower:
    """Return what finds the best short passage of a row; None if there is none, or if it is shown.

    ``find_shown`` returns the text of what is shown anyway.
    """

    def find(index: int) -> Entry | None:
        split = rows[index].split
        passages = split(LEAST_CHARS) if split else ()
        scores = rank([each.passage for each in passages if each.passage])
        best = max(range(len(scores)), key=scores.__getitem__, default=None)
        if best is None or _beginning(passages[best]) in find_shown():
            return None
        return passages[best]

    return find


def _beginning(form: Entry) -> str:
    """Return how a form begins, after the sign of what is left out."""
    said = form.passage.text if form.passage else form.text
    return said.lstrip(f"{GAP} \n")[:BEGINNING_CHARS]


def most_tokens(entry: Entry, count: Count) -> int:
    """Return the most tokens that an entry can cost in any position."""
    group = entry_cost(entry, count).group
    # `max` takes twice as long
    return group.tokens if group.tokens > group.tokens_last else group.tokens_last


def make_key(row: Entry) -> tuple[Role | None, str]:
    """Return what rows that say the same have in common: the speaker, and the text without case."""
    passage = row.passage
    return (passage.speaker, fold_row(passage.text)) if passage else (None, fold_row(row.text))


def fold(text: str) -> str:
    """Return a text in a form that all texts have which say the same."""
    folded = unicodedata.normalize("NFC", text).casefold().replace(", ", " ")
    return " ".join(folded.split()).rstrip(_ENDINGS) or folded


#: The same for the texts of rows: builds of one history compare the same ones.
fold_row: Final = lru_cache(maxsize=4096)(fold)
