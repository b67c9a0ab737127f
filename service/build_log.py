"""What a build leaves behind in the log and in the metrics."""

from datetime import datetime
from typing import Final

import structlog

from formatters.structure import BUILT_IN_TAGS
from service.account import HISTORY_BLOCKS
from service.builder import Answered
from service.inbox import Delivery
from service.metrics import NO_MODEL, OTHER_MODEL, Metrics, Sizes
from service.provenance import Built
from service.tracing import current, fail

#: Named, so that the name need not be looked for with each answer.
log = structlog.get_logger(__name__)

#: How metrics name every block that a request brought along: its tag is a stranger's.
CUSTOM: Final = "custom"
#: How they name the array of tools, which is no block.
TOOLS: Final = "tools"


def note_build(
    delivery: Delivery, answered: Answered, began: datetime, ended: datetime, metrics: Metrics
) -> None:
    """Write the one line that a build leaves in the log, and note what it took."""
    response = answered.response
    if answered.built:
        metrics.built(sizes_of(answered.built))
    content, seconds = response.content, (ended - began).total_seconds()
    # with clocks that are set meanwhile, time may run backwards
    metrics.took("queue", max(0.0, (began - delivery.received_at).total_seconds()))
    metrics.took("build", max(0.0, seconds))
    told = {
        "request_id": response.metadata.request_id,
        "run_id": response.run_id,
        "owner_key": response.owner_key,
        "attempt": delivery.attempt,
        "milliseconds": round(seconds * 1000, 1),
    }
    if content.status == "error":
        # places, not details: those may quote the request
        places = [problem["pointer"] for problem in content.error.errors]
        fail(current(), content.error.code)
        log.warning("context.refused", **told, code=content.error.code, places=places)
        return
    log.info(
        "context.built",
        **told,
        build_id=content.build_id,
        model=content.usage.model,
        total=content.usage.total,
        available=content.usage.available,
        blocks=content.usage.blocks,
        kept=content.kept,
        dropped=content.dropped,
        warnings=[warning.code for warning in content.warnings],
    )


def sizes_of(built: Built) -> Sizes:
    """Return what a context came to, in labels of ours."""
    fitted, content = built.fitted, built.content
    history = HISTORY_BLOCKS[built.plan.layout]
    plan = built.plan
    return Sizes(
        model=plan.known_model or (OTHER_MODEL if plan.model else NO_MODEL),
        blocks=[
            (TOOLS, fitted.tools),
            *((_label(tag), tokens) for tag, tokens in fitted.tokens.items()),
        ],
        utilization=content.usage.utilization,
        yielded=[(_label(block.tag), block.code) for block in fitted.yielded],
        strategy=built.plan.strategy.name,
        saved=max(0, sum(f.saved for f in fitted.fates if f.block.tag == history)),
    )


def _label(tag: str) -> str:
    return tag if tag in BUILT_IN_TAGS else CUSTOM
