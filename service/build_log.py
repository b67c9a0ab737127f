"""What a build leaves behind in the log and in the metrics."""

from datetime import datetime

import structlog

from service.inbox import Delivery
from service.metrics import Metrics
from service.wire import BuildResponse

log = structlog.get_logger()


def note_build(
    delivery: Delivery, response: BuildResponse, began: datetime, ended: datetime, metrics: Metrics
) -> None:
    """Write the one line that a build leaves in the log, and count it."""
    content, seconds = response.content, (ended - began).total_seconds()
    # with clocks that are set meanwhile, time may run backwards
    metrics.took("queue", max(0.0, (began - delivery.received_at).total_seconds()))
    metrics.took("build", max(0.0, seconds))
    metrics.answered(content.error.code if content.status == "error" else content.status)
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
