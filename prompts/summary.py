"""Summaries as a model reads them: in place of the oldest turns of a context."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from formatters.guard import GUARD
from formatters.handles import make_summary_handle
from formatters.model import BEYOND_LIMIT, Block, Entry, Facts, Summary, SummaryForm, Tag

EXPLANATION: Final = """\
Nobody said this: it was written to stand for earlier messages that no longer fit here.
It holds what they came to, not their words, and may lack details.
Where a later message says otherwise, the later message is right."""

#: The line between the explanation of a summary and its text.
RULE: Final = "---"


def list_summary_forms(facts: Facts, history: Block) -> tuple[SummaryForm, ...]:
    """Return the forms in which stored summaries can replace turns of ``history``, largest first.

    The first form has all summaries, and each further one omits the oldest of the last.
    """
    summaries = facts.summaries
    read = {message.id for message in facts.history}
    omitted = {
        id_
        for omission in history.omissions
        if omission.reason == BEYOND_LIMIT
        for id_ in omission.message_ids
    }
    beyond = [
        not summary.covers.isdisjoint(omitted)
        or (facts.more_history and not summary.covers <= read)
        for summary in summaries
    ]
    return tuple(
        SummaryForm(
            _stored_entry(summaries[oldest:], facts),
            covers=tuple(summary.covers for summary in summaries[oldest:]),
            beyond=any(beyond[oldest:]),
        )
        for oldest in range(len(summaries))
    )


def _stored_entry(summaries: Sequence[Summary], facts: Facts) -> Entry:
    """Show summaries as one entry; guarded, since a summarizer may quote what people said."""
    text = "\n\n".join(_show(summary, facts) for summary in summaries)
    return Entry(text=format_summary(text, max(summary.created for summary in summaries)))


def _show(summary: Summary, facts: Facts) -> str:
    text = facts.guard.quote(summary.text)
    if not facts.recall_tool:
        return text
    return f"{text}\n(its messages: recall id {make_summary_handle(summary.message_ids[-1])})"


#: The header of a summary without a time, such as one of a strategy.
HEADER: Final = f"[{Tag.CONTEXT_SUMMARY}]"


def format_summary(text: str, generated: datetime | None = None) -> str:
    """Return a summary under a header with its minute, in the time zone of ``generated``."""
    header = HEADER
    if generated is not None:
        minute = generated.replace(tzinfo=None).isoformat(sep=" ", timespec="minutes")
        header = f"[{Tag.CONTEXT_SUMMARY} - Generated: {minute}]"
    return f"{header}\n{EXPLANATION}\n{RULE}\n{text}"


def create_summary_message(
    text: str, *, generated: datetime | None = None, prefix: str | None = None
) -> dict[str, str]:
    """Return a summary as a user message; ``prefix`` replaces the header that explains it."""
    quoted = GUARD.quote(text)
    content = format_summary(quoted, generated) if prefix is None else f"{prefix}\n{quoted}"
    return {"role": "user", "content": content}


def read_summary(content: str) -> str:
    """Return the text of a message that `create_summary_message` returned, or any other content."""
    header, rule, text = content.partition(f"\n{EXPLANATION}\n{RULE}\n")
    is_summary = rule and header.startswith(HEADER[:-1])
    return GUARD.unquote(text) if is_summary else content


def format_summary_entry(sentence: str) -> Entry:
    """Show a strategy's own words as the first entry of `[SHARED_MEMORY]`; it counts as no row."""
    return Entry(text=f"{HEADER}\n{sentence}")


def summary_block(entry: Entry, *, volatile: bool = False) -> Block:
    """Show a summary as a message before native history.

    A stored summary is the same in the next build; one that counts turns is ``volatile``.
    """
    return Block(tag=Tag.SUMMARY, entries=(entry,), volatile=volatile)
