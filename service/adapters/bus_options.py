"""The options of a bus, for every adapter."""

import os
import secrets
import socket
from dataclasses import dataclass, field, fields
from typing import Final

from service.config.endpoints import TlsSettings
from service.config.settings import BusSettings, Settings
from service.wire.protocol import DEAD_MAX_LENGTH, REPLY_MAX_LENGTH, REQUESTS_GROUP, RESULTS_GROUP

_DEFAULTS: Final = BusSettings()


def consumer_name() -> str:
    """Return a name that no other process, and no earlier run of this one, has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BusOptions:
    """How a bus behaves; `BusSettings` documents the fields that it has too."""

    #: A prefix in braces (``{prod}.``) puts all keys into one slot of a cluster.
    prefix: str = _DEFAULTS.prefix
    lease_seconds: float = _DEFAULTS.lease_seconds
    result_ttl_seconds: float = _DEFAULTS.result_ttl_seconds
    result_max_bytes: int = _DEFAULTS.result_max_bytes
    max_backlog: int = _DEFAULTS.max_backlog
    reply_ttl_seconds: float = _DEFAULTS.reply_ttl_seconds
    socket_timeout_seconds: float = _DEFAULTS.socket_timeout_seconds
    tls: TlsSettings = _DEFAULTS.tls
    #: Replies that a stream keeps, approximately.
    reply_max_length: int = REPLY_MAX_LENGTH
    #: Entries that the dead-letter stream keeps, approximately; the oldest are deleted first.
    dead_max_length: int = DEAD_MAX_LENGTH
    #: How long copies of a payload on the channel count as one. All workers receive a message
    #: within less; and a retry that a restarted worker receives first must not count as a copy.
    heard_ttl_seconds: float = 1.0
    #: The group that reads requests.
    group: str = REQUESTS_GROUP
    #: The group that reads results.
    results_group: str = RESULTS_GROUP
    #: This process's name in both groups; it must be unique.
    consumer: str = field(default_factory=consumer_name)


def bus_options(settings: Settings) -> BusOptions:
    """Return the options that the settings require."""
    shared = BusSettings.model_fields.keys() & {option.name for option in fields(BusOptions)}
    return BusOptions(
        **{name: getattr(settings.bus, name) for name in shared},
        consumer=settings.worker.consumer or consumer_name(),
    )
