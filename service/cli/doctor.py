"""``ctxb doctor``: check an installation, and say what to do about what is wrong."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

import typer
from rich.text import Text

from service.cli.checks import CHECKS, Finding, fail
from service.cli.exits import Exit, run_until_stopped
from service.cli.options import Json
from service.cli.output import console, print_json, printable, table
from service.cli.start import start
from service.config.settings import Settings
from service.errors import BusError, ContextBuilderError, StoreError
from service.observe.logs import mask_urls

#: Seconds for a whole check. MCP servers have a shorter time limit of their own.
CHECK_SECONDS: Final = 60.0

_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}

#: What to do about an error, by its class. All other errors are about settings.
_ADVICE: Final[Mapping[type[ContextBuilderError], str]] = {
    BusError: "check that the server of bus.url runs, and its log",
    StoreError: "check that store.url can be reached from here",
}
_OTHER_ADVICE: Final = "correct the setting: ctxb config show"


def doctor(ctx: typer.Context, as_json: Json = False) -> None:
    """Check an installation: settings, bus, store, tokenizers, tools, prompts, HTTP, disks.

    ctxb doctor
    ctxb -c production.yml doctor --json

    Run it where the workers run, with their settings. Each line is ok, warn
    or fail, with its cause and what to do about it. Nothing is changed: the
    bus is asked for a worker's permissions without using them, and MCP
    servers are asked for their tools. The exit code is 1 if a line says fail,
    and 3 if the settings can't be read.
    """
    findings = run_until_stopped(run_checks(start(ctx.obj, log_outdated=False)))
    if as_json:
        print_json(findings_dicts(findings))
    else:
        print_findings(findings)
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(Exit.FAILED)


async def run_checks(settings: Settings) -> list[Finding]:
    """Run all checks in order; an error in one is a finding, and the others still run."""
    findings: list[Finding] = []
    for name, check in CHECKS.items():
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                async for finding in check(settings):
                    findings.append(finding)  # noqa: PERF401 - those before an error count too
        except TimeoutError:
            findings.append(
                fail(name, f"no result after {CHECK_SECONDS:g} s", "check whether it hangs")
            )
        except ContextBuilderError as error:
            findings.append(fail(name, error.detail, _advice(error)))
    return findings


def _advice(error: ContextBuilderError) -> str:
    return next(
        (advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), _OTHER_ADVICE
    )


def print_findings(findings: Iterable[Finding]) -> None:
    """Print a table, and the number of findings of each state."""
    counts = {"ok": 0, "warn": 0, "fail": 0}
    rows = table("", "Checked", "Result, and what to do")
    for finding in findings:
        counts[finding.state] += 1
        result = Text(_safe(finding.found))
        if finding.advice:
            result.append(f"\n→ {_safe(finding.advice)}", style="bold")
        rows.add_row(Text(finding.state, style=_STYLES[finding.state]), _safe(finding.what), result)
    console().print(rows)
    console().print(", ".join(f"{number} {state}" for state, number in counts.items()))


def findings_dicts(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """Return the findings as JSON."""
    return [{name: _safe(value) for name, value in asdict(finding).items()} for finding in findings]


def _safe(text: str) -> str:
    # a server's error message may contain a URL with its password, or what it was sent
    return printable(mask_urls(text))
