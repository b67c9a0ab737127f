"""What other machines, and other people of this one, reach."""

import os
from collections.abc import AsyncIterator, Iterator

from service.cli.checkup.finding import Finding, fail, ok, warn
from service.config.endpoints import HttpSettings, is_loopback
from service.config.settings import Settings


async def http(settings: Settings) -> AsyncIterator[Finding]:
    """Look at who reaches the HTTP interface, and what it shows."""
    chosen = settings.http
    if chosen.port is None:
        yield ok("http", "off")
        return
    where = f"{chosen.host}:{chosen.port or 'a free port'}"
    for finding in (_reached_here if is_loopback(chosen.host) else _reached)(chosen, where):
        yield finding


def _reached_here(chosen: HttpSettings, where: str) -> Iterator[Finding]:
    if chosen.token is None:
        advice = "set http.token where others use this machine too"
        yield warn("http", f"{where}, this machine alone, without a token", advice)
    else:
        yield ok("http", f"{where}, this machine alone, with a token")


def _reached(chosen: HttpSettings, where: str) -> Iterator[Finding]:
    # the settings don't allow it to be without a token
    yield warn("http", f"{where}, with a token, without TLS", "put a proxy with TLS before it")
    if not chosen.allowed_hosts:
        advice = "name those in http.allowed_hosts that callers use"
        yield warn("http", f"{where} answers to any name", advice)
    if chosen.content == "full":
        advice = "http.content: redacted, unless only operators have the token"
        yield warn("http", f"{where} shows what people said", advice)


async def heartbeat(settings: Settings) -> AsyncIterator[Finding]:
    """Look whether a worker may write its heartbeat file."""
    file = settings.worker.heartbeat_file
    if file is None:
        yield ok("heartbeat", "no file is configured")
    elif os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        yield ok("heartbeat", f"{file} can be written")
    else:
        yield fail("heartbeat", f"{file} can't be written", "name another worker.heartbeat_file")
