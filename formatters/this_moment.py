"""The `[THIS_MOMENT]` block: the time, reminders, what isn't shown, and the current input."""

from formatters.model import Block, Entry, Facts, NotShown, Tag
from formatters.rows import counted, fix_surrogates
from formatters.times import format_clock_time, parse_minutes_west, parse_timestamp, to_local_time


def this_moment(facts: Facts) -> Block:
    """Show the current input, whole under any budget; of one line without outer blanks."""
    time = f"<current_time>{format_clock_time(facts.now)}</current_time>\n" if facts.now else ""
    # the operator's texts are trusted, and so not guarded
    notes = "".join(f"<operator_note>\n{note}\n</operator_note>\n" for note in facts.injections)
    missing = _format_not_shown(facts.not_shown) if facts.not_shown else ""
    said = facts.current_input
    # in several lines, outer blanks may be the indentation of code
    text = facts.guard.quote(said if "\n" in said.strip() else said.strip())
    return Block(
        tag=Tag.THIS_MOMENT,
        header=f"[{Tag.THIS_MOMENT}]\n",
        entries=(Entry(text=f"{time}{notes}{missing}<human_input>\n{text}\n</human_input>"),),
        volatile=True,
    )


def _format_not_shown(missing: NotShown) -> str:
    """Say in a line what can be recalled; fewer messages never make it longer."""
    parts = [
        counted(number, name)
        for number, name in (
            (missing.messages, "earlier message"),
            (missing.results, "tool result"),
        )
        if number
    ]
    are = "is" if (missing.messages, missing.results) in ((1, 0), (0, 1)) else "are"
    newest = f"; newest: {missing.handle}" if missing.handle else ""
    return f"({' and '.join(parts)} {are} not shown; call recall{newest})\n"


class MomentFormatter:
    """Writes the block `[THIS_MOMENT]`."""

    @staticmethod
    def format_this_moment(
        current_input: str, timestamp_utc: str, timezone_offset: int | str = 0
    ) -> str:
        """Return the block; the offset is in minutes west of UTC, 0 if it can't be read."""
        moment = parse_timestamp(timestamp_utc)
        west = parse_minutes_west(timezone_offset) or 0
        now = to_local_time(moment, west) if moment else None
        return this_moment(Facts(current_input=fix_surrogates(current_input), now=now)).text
