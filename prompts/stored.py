"""Stored summaries as they are shown: all under one header, or fewer where room is short."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from formatters.guard import quoted
from formatters.model import Block, Entry, Facts, Summary, SummaryForm
from prompts.summary import summary_text

#: Texts that are remembered as the guard leaves them: each build of an owner shows the same.
REMEMBERED: Final = 512


def summary_forms(facts: Facts, history: Block) -> tuple[SummaryForm, ...]:
    """Return what may stand for turns of the block of history that are left out.

    First all summaries together, then without the oldest, and so on: the oldest gives way first.
    """
    return tuple(_forms(facts, history))


def _forms(facts: Facts, history: Block) -> Iterator[SummaryForm]:
    read = {message.id for message in facts.history}
    unshown = {
        id_
        for omission in history.omissions
        if omission.reason == "memory_limit"
        for id_ in omission.message_ids
    }
    beyond = [
        not summary.covers.isdisjoint(unshown)
        or (facts.more_history and not summary.covers <= read)
        for summary in facts.summaries
    ]
    for place in range(len(facts.summaries)):
        shown = facts.summaries[place:]
        covers = tuple(summary.covers for summary in shown)
        yield SummaryForm(_entry(shown, facts.tags), covers, any(beyond[place:]))


def _entry(summaries: Sequence[Summary], tags: frozenset[str]) -> Entry:
    """Whoever summarised may quote what people said, so it is guarded like their words."""
    text = "\n\n".join(_guarded(summary.text, tags) for summary in summaries)
    return Entry(text=summary_text(text, max(summary.created for summary in summaries)))


@lru_cache(maxsize=REMEMBERED)
def _guarded(text: str, tags: frozenset[str]) -> str:
    return quoted(text, tags)
