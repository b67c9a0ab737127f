"""Summaries as a model reads them: in place of the oldest turns of a context."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from formatters.guard import quoted
from formatters.model import BEYOND_LIMIT, Block, Entry, Facts, Summary, SummaryForm, Tag
from formatters.printed import quote_cached

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
            _stored_entry(summaries[oldest:], facts.tags),
            covers=tuple(summary.covers for summary in summaries[oldest:]),
            beyond=any(beyond[oldest:]),
        )
        for oldest in range(len(summaries))
    )


def _stored_entry(summaries: Sequence[Summary], tags: frozenset[str]) -> Entry:
    """Show summaries as one entry; guarded, since a summarizer may quote what people said."""
    text = "\n\n".join(quote_cached(summary.text, tags) for summary in summaries)
    return Entry(text=format_summary(text, max(summary.created for summary in summaries)))


def format_summary(text: str, generated: datetime) -> str:
    """Return a summary under a header with its minute, in the time zone of ``generated``."""
    minute = generated.replace(tzinfo=None).isoformat(sep=" ", timespec="minutes")
    return f"[{Tag.CONTEXT_SUMMARY} - Generated: {minute}]\n{EXPLANATION}\n{RULE}\n{text}"


def create_summary_message(
    text: str, *, generated: datetime, prefix: str | None = None
) -> dict[str, str]:
    """Return a summary as a user message; ``prefix`` replaces the header and the explanation."""
    content = format_summary(text, generated) if prefix is None else f"{prefix}\n{text}"
    return {"role": "user", "content": content}


#: The header of a summary by a strategy, which tells it apart from what people said.
HEADER: Final = f"[{Tag.CONTEXT_SUMMARY}]"


def format_summary_entry(sentence: str, tags: frozenset[str] = frozenset()) -> Entry:
    """Show a strategy's summary as the first entry of `[SHARED_MEMORY]`; it counts as no row.

    Guarded, since it may quote what people said; ``tags`` are this build's own tags.
    """
    return Entry(text=f"{HEADER}\n{quoted(sentence, tags)}")


def summary_block(entry: Entry, *, volatile: bool = False) -> Block:
    """Show a summary as a message before native history.

    A stored summary is the same in the next build; one that counts turns is ``volatile``.
    """
    return Block(tag=Tag.SUMMARY, entries=(entry,), volatile=volatile)
