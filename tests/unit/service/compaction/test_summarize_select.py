"""What is summarised: the oldest turns that have no summary, in whole groups."""

from dataclasses import replace
from typing import Any

from formatters.model import MemoryView, Row
from service.adapters.tokens.tokenizers import TiktokenTokenizers
from service.compaction.job import Job
from service.compaction.summarize import Segment, select_segment, sort_rows, whole_segment
from service.config.content import SummariesSettings
from service.ports.stores import Scope
from tests.support import row

SETTINGS = SummariesSettings()
#: Of 17 tokens each, as a turn of `[SHARED_MEMORY]`.
TURNS = [
    each
    for n in range(10)
    for each in (
        row(2 * n, "HUMAN", "words", run_id=f"r{n}"),
        row(2 * n + 1, "AI", "words", run_id=f"r{n}"),
    )
]


def job(**fields: Any) -> Job:
    """Return a job for builds with 200 tokens for history."""
    made = Job(
        scope=Scope("o"),
        room=200,
        tokenizer="o200k_base",
        layout="tagged",
        memory=MemoryView(limit=None),
    )
    return replace(made, **fields)


def stretch(rows: list[Row], settings: SummariesSettings = SETTINGS, **fields: Any) -> Segment:
    """Choose from rows."""
    count = TiktokenTokenizers().counter("o200k_base").count
    return select_segment(rows, job(**fields), settings, count)


def names(number: int) -> tuple[str, ...]:
    """Return the ids of the first n rows."""
    return tuple(f"m{n}" for n in range(number))


def test_the_target_is_reached_and_no_more() -> None:
    """What is left takes at most the target less the summaries' share."""
    chosen = stretch(TURNS)
    left = whole_segment(TURNS, job(), TiktokenTokenizers().counter("o200k_base").count)

    assert chosen.ids == names(len(chosen.ids))
    assert len(chosen.ids) % 2 == 0
    each = left.tokens / 10
    assert 200 * 0.55 - each <= left.tokens - chosen.tokens <= 200 * 0.55 + 1
    assert chosen.kept == 20 - len(chosen.ids)
    assert [message.id for message in chosen.messages] == list(chosen.ids)


def test_the_newest_are_never_chosen() -> None:
    """Their share stays whatever the target is, and so does the newest turn."""
    ratios = {"target_ratio": 0.0, "recent_preserve_ratio": 0.5}
    some = stretch(TURNS, SummariesSettings.model_validate(ratios))
    forced = stretch(TURNS, SummariesSettings.model_validate(ratios), force=True)
    assert some.ids == forced.ids
    assert 0 < len(some.ids) < 18

    tiny = stretch(TURNS, room=1)
    assert tiny.ids == names(18)
    assert stretch(TURNS[:2], room=1, force=True).ids == ()
    assert stretch([]).ids == ()


def test_a_limit_of_rows_counts_like_tokens() -> None:
    """Where only n rows are shown, what is left is their share of it."""
    assert stretch(TURNS, room=10_000, memory=MemoryView(limit=10)).ids == names(16)


def test_the_run_that_goes_on_is_left_alone() -> None:
    """It may have rows to come; nothing from it on is chosen."""
    assert stretch(TURNS, room=1, run_id="r3").ids == names(6)
    odd = [row(98, "system", "of the run", run_id="r9"), *TURNS]
    assert "m98" not in stretch(odd, room=1, run_id="r9").ids


def test_rows_that_no_context_shows_are_covered_too() -> None:
    """Else they would lack a summary for ever; those behind the stretch are not."""
    odd = [row(90, "system", "rules"), *TURNS, row(91, "system", "more")]
    chosen = stretch(odd, room=1)
    assert chosen.ids == ("m90", *names(18))
    assert "m90" not in [message.id for message in chosen.messages]


def test_turns_that_cross_stay_whole() -> None:
    """A turn that is not chosen is not covered, though it began before another one ended."""
    crossed = [TURNS[0], TURNS[2], TURNS[1], TURNS[3], *TURNS[4:]]
    chosen = stretch(crossed, room=1, run_id="r1")
    assert chosen.ids == ("m0", "m1")


def test_a_call_goes_with_its_result() -> None:
    """In the chat layout no stretch ends between the two."""
    call = {"tool_calls": [{"id": "c", "name": "f", "arguments": {}}]}
    rows = [
        row(0, "HUMAN", "Well?", run_id="r"),
        row(1, "AI", "", run_id="r", metadata=call),
        row(2, "TOOL", "result", run_id="r", metadata={"tool_call_id": "c"}),
        row(3, "AI", "Done.", run_id="r"),
    ]
    assert stretch(rows, room=1, layout="chat").ids == names(3)


def test_rows_are_put_in_order() -> None:
    """By time; rows of one moment, and rows that are none, stay as they came."""
    late, early, odd = (
        {"id": name, "role": "human", "content": name, "timestamp": time}
        for name, time in (("late", "2025-01-02"), ("early", "2025-01-01"), ("odd", "2025-01-02"))
    )
    assert sort_rows([late, early, odd]) == [early, late, odd]
