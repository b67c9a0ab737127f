"""How a bus behaves, whichever adapter it is."""

import os
import secrets
import socket
from dataclasses import dataclass, field

from service.config.sections import TlsSettings
from service.config.settings import Settings


def consumer_name() -> str:
    """Return a name that no other process and no earlier run of this one has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BusOptions:
    """What may differ between two deployments of the bus."""

    #: Stands before every topic and key, as in ``prod.``. A prefix in braces (``{prod}.``) puts
    #: all keys into one slot of a cluster.
    prefix: str = ""
    #: How long a delivery stays with a worker that does not renew it.
    lease_seconds: float = 5.0
    #: How long an answer is kept for retries.
    result_ttl_seconds: float = 60.0
    #: The largest answer that is kept, in bytes after compression.
    result_max_bytes: int = 1_048_576
    #: Entries in the request stream from which on the ingress refuses more.
    max_backlog: int = 100_000
    #: How long a list or stream of replies outlives its last reply.
    reply_ttl_seconds: float = 300.0
    #: Replies that a stream keeps, roughly.
    reply_max_length: int = 1000
    #: Entries that the dead letter keeps, roughly; the oldest go first.
    dead_max_length: int = 100_000
    #: How long copies of a payload on the channel count as one. Those of one message reach all
    #: workers sooner; a retry that a restarted worker hears first must not be taken for one.
    heard_ttl_seconds: float = 1.0
    #: The group that reads requests.
    group: str = "context-builders"
    #: The group that reads results.
    results_group: str = "context-recorders"
    #: This process in both groups; unique to it.
    consumer: str = field(default_factory=consumer_name)
    #: Seconds after which a silent server counts as gone.
    socket_timeout: float = 5.0
    #: For URLs that ask for TLS.
    tls: TlsSettings = field(default_factory=TlsSettings)


def bus_options(settings: Settings) -> BusOptions:
    """Return what the settings say of the bus."""
    bus = settings.bus
    return BusOptions(
        prefix=bus.prefix,
        lease_seconds=bus.lease_seconds,
        result_ttl_seconds=bus.result_ttl_seconds,
        result_max_bytes=bus.result_max_bytes,
        max_backlog=bus.max_backlog,
        reply_ttl_seconds=bus.reply_ttl_seconds,
        socket_timeout=bus.socket_timeout_seconds,
        tls=bus.tls,
        consumer=settings.worker.consumer or consumer_name(),
    )
