from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from service.recall.dates import MAX_DATES, Days, find_days, find_spans

NOW = datetime(2025, 12, 10, 8, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("question", "days"),
    [
        ("What happened on 2023-05-21?", [Days(2023, 5, 21)]),
        ("What happened in 2023-05?", [Days(2023, 5)]),
        ("Where was Ann on May 7, 2023?", [Days(2023, 5, 7)]),
        ("Where was Ann on the 7th of May?", [Days(None, 5, 7)]),
        ("Where was Ann in June?", [Days(None, 6)]),
        ("Where was Ann in June 2023?", [Days(2023, 6)]),
        ("Where was Ann in 2022?", [Days(2022)]),
        ("Was war am 3. März 2024?", [Days(2024, 3, 3)]),
        ("Was war am 3.10.2024 und 21. 5. 2023.", [Days(2024, 10, 3), Days(2023, 5, 21)]),
        ("Version 1.2.2024.7 or 32.1.2024", [Days(2024)]),
        ("Qué pasó el 5 de octubre de 2021?", [Days(2021, 10, 5)]),
        ("Qu'as-tu fait en août ?", [Days(None, 8)]),
        ("5月去了哪里？", [Days(None, 5)]),
        ("2023年5月21日に何をした？", [Days(2023, 5, 21)]),
        ("2023년 5월에 뭐 했어?", [Days(2023, 5)]),
        ("What did he say last May?", [Days(2025, 5)]),
        ("What did he say last December?", [Days(2024, 12)]),
        ("May I ask you something?", []),
        ("You may go, and they march on", []),
        ("What should I see in march?", [Days(None, 3)]),
        ("Is 20235 a number, or 12?", []),
        ("Where was Ann in Auguſt 2023, or in aprıl 2022?", [Days(2023, 8), Days(2022)]),
        ("", []),
    ],
)
def test_named_days_are_read(question: str, days: list[Days]) -> None:
    """Dates, months and years are read in several languages, other words are not."""
    assert list(find_days(question, NOW)) == days


@pytest.mark.parametrize(
    ("question", "first", "last"),
    [
        ("What did I say yesterday?", date(2025, 12, 9), date(2025, 12, 9)),
        ("And the day before yesterday?", date(2025, 12, 8), date(2025, 12, 8)),
        ("Who came last week?", date(2025, 12, 1), date(2025, 12, 7)),
        ("Who came last month?", date(2025, 11, 1), date(2025, 11, 30)),
        ("Who came last year?", date(2024, 1, 1), date(2024, 12, 31)),
        ("Who came last Friday?", date(2025, 12, 5), date(2025, 12, 5)),
        ("Who came last Wednesday?", date(2025, 12, 3), date(2025, 12, 3)),
        ("Who came 3 days ago?", date(2025, 12, 7), date(2025, 12, 7)),
        ("Who came two weeks ago?", date(2025, 11, 23), date(2025, 11, 29)),
        ("昨天谁来了？", date(2025, 12, 9), date(2025, 12, 9)),
        ("先週誰が来た？", date(2025, 12, 1), date(2025, 12, 7)),
        ("어제 누가 왔어?", date(2025, 12, 9), date(2025, 12, 9)),
    ],
)
def test_days_are_counted_from_today(question: str, first: date, last: date) -> None:
    """What lies before the moment of the question is a span of days."""
    assert [days.span for days in find_days(question, NOW)] == [(first, last)]
    assert find_days(question, None) == ()


def test_days_beyond_the_calendar_are_its_edge() -> None:
    """A number of months that no calendar has doesn't fail."""
    early = datetime(1, 1, 3, tzinfo=UTC)

    (days,) = find_days("999 months ago", early)
    assert days.span == (date(1, 1, 1), date(1, 1, 16))
    assert find_days("last year", early)[0].has(date(1, 6, 1))


def test_a_day_is_among_them_or_soon_after() -> None:
    """Parts that are left open fit any day; the ten days after are close."""
    may = Days(None, 5)

    assert may.has(date(2021, 5, 3))
    assert not may.has(date(2021, 6, 3))
    assert may.just_before(date(2021, 6, 10))
    assert not may.just_before(date(2021, 6, 11))
    assert not may.just_before(date(2021, 5, 3))
    assert not may.just_before(date(1, 1, 5))


def test_the_number_of_dates_is_limited() -> None:
    """A list of dates is no question about them."""
    question = " ".join(f"2023-05-{day:02}" for day in range(1, 29))

    assert len(find_days(question, NOW)) == MAX_DATES


NOON = datetime(2025, 11, 30, 12, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("question", "spans"),
    [
        ("What did we do on 25 October 2025?", [("2025-10-25", "2025-10-26")]),
        ("And in May 2024?", [("2024-05-01", "2024-06-01")]),
        ("Where was I yesterday?", [("2025-11-29", "2025-11-30")]),
        ("Who came on 24 December?", [(f"{y}-12-24", f"{y}-12-25") for y in (2025, 2024, 2023)]),
        ("What happened on 29 February?", [("2024-02-29", "2024-03-01")]),
        ("What happened in 2024?", []),
        ("What happened last year?", []),
        ("Is it 2025-13-01?", []),
        ("When?", []),
    ],
)
def test_days_begin_and_end_in_the_zone_of_the_question(
    question: str, spans: list[tuple[str, str]]
) -> None:
    """A date without a year is one of recent years; what is longer than a month isn't there."""
    assert find_spans(question, NOON) == [
        (
            datetime.fromisoformat(f"{first}T00:00+02:00"),
            datetime.fromisoformat(f"{end}T00:00+02:00"),
        )
        for first, end in spans
    ]


def test_without_a_moment_days_need_a_year() -> None:
    """They are those of UTC."""
    assert find_spans("What did we do on 24 December?", None) == []
    ((begin, _),) = find_spans("What did we do on 2025-12-24?", None)
    assert begin == datetime(2025, 12, 24, tzinfo=UTC)
