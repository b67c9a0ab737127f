"""A history summarised on demand, as far as its newest turns."""

from service.app import open_builder
from service.compaction.compactor import find_compactor
from service.compaction.job import find_job
from service.compaction.summarize import NewSummary, SkipReason
from service.config.settings import Settings
from service.errors import ConfigError
from service.wire.request import BuildRequest


async def compact_history(
    settings: Settings, owner_key: str, conversation_id: str | None
) -> NewSummary | SkipReason:
    """Summarise what has no summary yet, for builds without wishes of their own.

    Raises:
        ConfigError: No summaries are to be made.
        ContextBuilderError: There is no context for this owner, or no summary.
    """
    request = BuildRequest.model_validate(
        {
            "owner_key": owner_key,
            "conversation_id": conversation_id,
            "content": {"current_input": "-", "context": {"strategy": "summarization"}},
        }
    )
    async with open_builder(settings) as builder:
        compactor = find_compactor(builder.after_answer)
        if compactor is None:
            raise ConfigError("summaries.enabled: no summaries are made")
        job = find_job(await builder.built(request), force=True)
        return await compactor.make(job) if job else SkipReason.NOT_NEEDED


def told(made: NewSummary | SkipReason) -> str:
    """Say what came of it."""
    if isinstance(made, NewSummary):
        covered = len(made.summary.message_ids)
        return (
            f"{covered} rows have a summary of {made.summary.tokens} tokens, in place of "
            f"{made.replaced}; {made.kept} have none"
        )
    return {
        SkipReason.NOT_NEEDED: "nothing to summarise: rows without one are too few or too new",
        SkipReason.BUSY: "another process summarises this owner's history just now",
        SkipReason.OVERTAKEN: "the history changed meanwhile; try again",
    }[made]
