"""Run the checks, each by itself, and show what they found."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from rich.text import Text

from service.cli.checkup import exposure, parts
from service.cli.checkup.bus import bus
from service.cli.checkup.finding import Check, Finding, fail
from service.cli.checkup.store import store
from service.cli.tables import console, printable, table
from service.config.settings import Settings
from service.errors import BusError, ContextBuilderError, StoreError
from service.observe.logs import mask_urls

#: By the name of what they look at, in the order in which a worker needs them.
CHECKS: Final[Mapping[str, Check]] = {
    "settings": parts.outdated,
    "bus": bus,
    "store": store,
    "tokenizers": parts.tokenizers,
    "strategy": parts.strategy,
    "prompts": parts.prompts,
    "tools": parts.tools,
    "summaries": parts.summaries,
    "http": exposure.http,
    "heartbeat": exposure.heartbeat,
}

#: Seconds that all of a check may take: servers of tools have their own time, which is shorter.
PATIENCE: Final = 60.0

_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}

#: By what is raised: what to do. All else is about settings.
_ADVICE: Final[Mapping[type[ContextBuilderError], str]] = {
    BusError: "look whether the server of bus.url runs, and what its log says",
    StoreError: "look whether store.url can be reached from here",
}
_OTHERWISE: Final = "mend the setting: ctxb config show"


async def look_at_all(settings: Settings) -> list[Finding]:
    """Run all checks, one after the other; what one raises is a finding too."""
    found: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            async with asyncio.timeout(PATIENCE):
                async for finding in check(settings):
                    found.append(finding)  # noqa: PERF401 - what came before an error counts too
        except TimeoutError:
            found.append(fail(name, f"no end after {PATIENCE:g} s", "look whether it hangs"))
        except ContextBuilderError as error:
            found.append(fail(name, error.detail, _advice(error)))
    return found


def _advice(error: ContextBuilderError) -> str:
    return next((said for kind, said in _ADVICE.items() if isinstance(error, kind)), _OTHERWISE)


def print_findings(findings: Iterable[Finding]) -> None:
    """Print a table, and how many of each state there are."""
    counted = {"ok": 0, "warn": 0, "fail": 0}
    rows = table("", "Looked at", "Found, and what to do")
    for each in findings:
        counted[each.state] += 1
        found = Text(_shown(each.found))
        if each.advice:
            found.append(f"\n→ {_shown(each.advice)}", style="bold")
        rows.add_row(Text(each.state, style=_STYLES[each.state]), _shown(each.what), found)
    console().print(rows)
    console().print(", ".join(f"{number} {state}" for state, number in counted.items()))


def as_document(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """Return the findings as JSON holds them."""
    return [{name: _shown(value) for name, value in asdict(each).items()} for each in findings]


def _shown(text: str) -> str:
    # a server's words may quote a URL, or hold what it was sent
    return printable(mask_urls(text))
