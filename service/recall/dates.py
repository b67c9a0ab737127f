"""Find the days that a question names: dates, months, years, and days relative to its moment."""

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import chain
from typing import Final

#: The names of the months in several languages, from January on, separated by blanks.
_NAMES: Final = (
    "january januar janvier enero gennaio janeiro januari",
    "february februar février febrero febbraio fevereiro februari",
    "march märz mars marzo março maart",
    "april avril abril aprile",
    "may mai mayo maggio maio mei",
    "june juni juin junio giugno junho",
    "july juli juillet julio luglio julho",
    "august août agosto augustus",
    "september septembre septiembre settembre setembro",
    "october oktober octobre octubre ottobre outubro",
    "november novembre noviembre novembro",
    "december dezember décembre diciembre dicembre dezembro",
)
_MONTHS: Final = {
    name: month for month, names in enumerate(_NAMES, start=1) for name in names.split()
}


def is_month(word: str) -> bool:
    """Return whether a lower-case word is the name of a month."""
    return word in _MONTHS


#: Months that are words as well, unless they are capitalized or part of a date.
_AMBIGUOUS: Final = frozenset({"may", "march", "mars", "mei"})

_WEEKDAYS: Final = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

_MONTH: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_YEAR: Final = r"(?:19|20)\d\d"
_DAY: Final = r"(?:[12]\d|3[01]|0?[1-9])"

_ISO: Final = re.compile(rf"(?<!\d)({_YEAR})-(\d\d)(?:-(\d\d))?(?!\d)")
#: "21.5.2023", as in many languages of Europe.
_DOTTED: Final = re.compile(rf"(?<![\d.])({_DAY})\.\s?(1[0-2]|0?[1-9])\.\s?({_YEAR})(?!\.?\d)")
#: "2023年5月21日" and "2023년 5월 21일", each part but the month optional.
_CJK: Final = re.compile(
    rf"(?:({_YEAR})\s*[年년]\s*)?(?<!\d)(1[0-2]|0?[1-9])\s*[月월](?:\s*({_DAY})\s*[日号號일])?"
)
_NAMED: Final = re.compile(
    rf"(?:\b({_DAY})(?:st|nd|rd|th|\.)?\s+(?:of\s+|de\s+)?)?\b({_MONTH})\b"
    rf"(?:\s+({_DAY})(?:st|nd|rd|th)?(?!\d))?(?:,?\s+(?:de\s+|of\s+)?({_YEAR})\b)?",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[^\W\d_]+")
_ANY_YEAR: Final = re.compile(_YEAR)
_LONE_YEAR: Final = re.compile(rf"(?<![\d-])({_YEAR})(?![\d-])")
_BEFORE_MONTH: Final = re.compile(r"\b(?:in|since|of|last|this|early|late|mid|by|until)\s+$", re.I)
_LAST: Final = re.compile(r"\b(?:last|previous)\s+$", re.I)
_AGO: Final = re.compile(r"\b(\d{1,3}|a|one|two|three|four|five|six)\s+(day|week|month)s?\s+ago\b")
_NUMBERS: Final = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_LAST_WEEKDAY: Final = re.compile(rf"\blast\s+({'|'.join(_WEEKDAYS)})\b")

#: Characters before a month that help to recognize it.
LEADING_CHARS: Final = 20
#: The most dates of a question; a text with more is hardly a question.
MAX_DATES: Final = 10

#: The questions of which is kept what was read of them.
READ_QUESTIONS: Final = 64
#: Days after an event during which people talk about it.
DAYS_AFTER: Final = 10
#: The years in which a date without a year is looked for, and the longest span that is.
RECENT_YEARS: Final = 3
MAX_SPAN: Final = timedelta(days=32)
_DAY_LENGTH: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Days:
    """The days that match the given parts of a date, or those of a span, both ends included."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    span: tuple[date, date] | None = None

    def has(self, day: date) -> bool:
        """Return whether a day is among them."""
        if self.span:
            return self.span[0] <= day <= self.span[1]
        parts = ((self.year, day.year), (self.month, day.month), (self.day, day.day))
        return all(given is None or given == actual for given, actual in parts)

    def spans(self, today: date | None) -> Iterator[tuple[date, date]]:
        """Yield the first and the last day of each span; without a year, those of recent years.

        A year alone has none.
        """
        if self.span:
            yield self.span
        elif self.month:
            recent = [today.year - back for back in range(RECENT_YEARS)] if today else []
            for year in [self.year] if self.year else recent:
                with suppress(ValueError):  # there is no such day
                    first = date(year, self.month, self.day or 1)
                    yield first, first if self.day else _last_of_month(first)

    def just_before(self, day: date) -> bool:
        """Return whether a day is not among them, but follows one of them soon."""
        if self.has(day) or day.toordinal() <= DAYS_AFTER:
            return False
        return any(self.has(day - timedelta(days=back)) for back in range(1, DAYS_AFTER + 1))


def find_days(question: str, now: datetime | None) -> tuple[Days, ...]:
    """Return the days that a question names; relative ones need its moment, ``now``."""
    return _find_days(question, now.date() if now else None)


@lru_cache(maxsize=READ_QUESTIONS)  # a build asks for them several times
def _find_days(question: str, today: date | None) -> tuple[Days, ...]:
    # a year that belongs to a month is not a date of its own
    has_year = _ANY_YEAR.search(question)
    remaining = question if has_year else ""
    remaining = _NAMED.sub(lambda found: found[0] if _month(found[2]) is None else " ", remaining)
    for dated in (_CJK, _DOTTED):
        remaining = dated.sub(" ", remaining)
    days = (
        *(Days(int(y), int(m), _int(d)) for y, m, d in _ISO.findall(question)),
        *(Days(int(y), int(m), int(d)) for d, m, y in _DOTTED.findall(question)),
        *(Days(_int(y), int(m), _int(d)) for y, m, d in _CJK.findall(question)),
        *_named_months(question, today),
        *(Days(year=int(year)) for year in _LONE_YEAR.findall(remaining)),
        *(_relative_days(question.lower(), today) if today else ()),
    )
    return tuple(dict.fromkeys(days))[:MAX_DATES]


def find_spans(question: str, now: datetime | None) -> list[tuple[datetime, datetime]]:
    """Return when the days that a question names begin and end, in the zone of its moment.

    The ends aren't included. What is longer than a month says too little of what to look for.
    """
    zone, today = (now.tzinfo or UTC, now.date()) if now else (UTC, None)
    days = chain.from_iterable(each.spans(today) for each in find_days(question, now))
    return [
        (datetime.combine(first, time(), zone), datetime.combine(last, time(), zone) + _DAY_LENGTH)
        for first, last in dict.fromkeys(days)
        if last - first < MAX_SPAN and last < date.max
    ]


def _last_of_month(first: date) -> date:
    return first.replace(day=monthrange(first.year, first.month)[1])


def _int(digits: str | None) -> int | None:
    return int(digits) if digits else None


def _month(name: str) -> int | None:
    """Return a month; None if it has a letter that regular expressions take for another one."""
    return _MONTHS.get(name.casefold())  # "ſ" is an "s", but "ı" no "i"


def _named_months(question: str, today: date | None) -> Iterator[Days]:
    if _MONTHS.keys().isdisjoint(_WORD.findall(question.casefold())):
        return  # of most questions, in a fifth of the time
    for match in _NAMED.finditer(question):
        day_before, name, day_after, digits = match.groups()
        month = _month(name)
        if month is None:
            continue
        leading = question[max(match.start() - LEADING_CHARS, 0) : match.start()]
        # "may" and "march" are words as well
        is_month = name.lower() not in _AMBIGUOUS or (name[0].isupper() and bool(leading.strip()))
        is_date = day_before or day_after or digits or _BEFORE_MONTH.search(leading)
        if not (is_month or is_date):
            continue
        year = _int(digits)
        if year is None and today and _LAST.search(leading):
            year = today.year - (month >= today.month)
        yield Days(year, month, _int(day_before or day_after))


def _relative_days(question: str, today: date) -> Iterator[Days]:
    for phrase, span in _PHRASES:
        if re.search(phrase, question):
            yield Days(span=span(today))
    for number, unit in _AGO.findall(question):
        count = _NUMBERS.get(number) or int(number)
        # "two weeks ago" doesn't mean an exact day
        size, slack = {"day": (1, 0), "week": (7, 3), "month": (30, 15)}[unit]
        middle = _days_before(today, count * size)
        yield Days(span=(_days_before(middle, slack), _days_before(middle, -slack)))
    for name in _LAST_WEEKDAY.findall(question):
        day = _days_before(today, (today.weekday() - _WEEKDAYS.index(name) - 1) % 7 + 1)
        yield Days(span=(day, day))


def _days_before(day: date, days: int) -> date:
    """Return the day ``days`` days earlier, or the first or last one of the calendar."""
    return date.fromordinal(min(max(day.toordinal() - days, 1), date.max.toordinal()))


def _span_before(first: int, last: int) -> Callable[[date], tuple[date, date]]:
    return lambda today: (_days_before(today, first), _days_before(today, last))


def _last_week(today: date) -> tuple[date, date]:
    monday = _days_before(today, today.weekday() + 7)
    return monday, _days_before(monday, -6)


def _last_month(today: date) -> tuple[date, date]:
    end = _days_before(today.replace(day=1), 1)
    return end.replace(day=1), end


def _last_year(today: date) -> tuple[date, date]:
    year = max(today.year - 1, 1)
    return date(year, 1, 1), date(year, 12, 31)


#: Patterns for days relative to the moment of the question.
_PHRASES: Final[tuple[tuple[str, Callable[[date], tuple[date, date]]], ...]] = (
    (r"(?<!before )\byesterday\b|\bgestern\b|\bhier\b|\bayer\b|昨[天日]|어제", _span_before(1, 1)),
    (
        r"\bday before yesterday\b|\bvorgestern\b|\bavant-hier\b|\banteayer\b|前天|一昨日|그저께",
        _span_before(2, 2),
    ),
    (
        r"\blast week\b|\bletzte woche\b|\bsemaine dernière\b|\bsemana pasada\b"
        r"|上[周週]|先週|지난주",
        _last_week,
    ),
    (
        r"\blast month\b|\bletzten monat\b|\bmois dernier\b|\bmes pasado\b|上个?月|先月|지난달",
        _last_month,
    ),
    (r"\blast year\b|\bletztes jahr\b|\bannée dernière\b|\baño pasado\b|去年|작년", _last_year),
)
