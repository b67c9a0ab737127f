"""The `[THIS_MOMENT]` block: the time, the operator's reminders, and the current input."""

from formatters.guard import quoted
from formatters.model import Block, Entry, Facts, Tag
from formatters.rows import fix_surrogates
from formatters.times import format_clock_time, parse_minutes_west, parse_timestamp, to_local_time


def this_moment(facts: Facts) -> Block:
    """Show the current input, whole under any budget."""
    time = f"<current_time>{format_clock_time(facts.now)}</current_time>\n" if facts.now else ""
    # the operator's texts are trusted, and so not guarded; the guard keeps others from the element
    notes = "".join(f"<operator_note>\n{note}\n</operator_note>\n" for note in facts.injections)
    text = quoted(facts.current_input, facts.tags)
    return Block(
        tag=Tag.THIS_MOMENT,
        header=f"[{Tag.THIS_MOMENT}]\n",
        entries=(Entry(text=f"{time}{notes}<human_input>\n{text}\n</human_input>"),),
        volatile=True,
    )


class MomentFormatter:
    """The block as text."""

    @staticmethod
    def format_this_moment(
        current_input: str, timestamp_utc: str, timezone_offset: int | str = 0
    ) -> str:
        """Return the block; the offset is in minutes west of UTC, 0 if it can't be read."""
        moment = parse_timestamp(timestamp_utc)
        west = parse_minutes_west(timezone_offset) or 0
        now = to_local_time(moment, west) if moment else None
        return this_moment(Facts(current_input=fix_surrogates(current_input), now=now)).text
