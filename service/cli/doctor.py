"""``ctxb doctor``: check an installation, and say what to do about what is wrong."""

import asyncio
from collections.abc import Mapping
from typing import Final

import typer

from service.cli.checks import CHECKS
from service.cli.exits import Exit, run_until_stopped
from service.cli.findings import Finding, fail, print_findings, without_secrets
from service.cli.options import Json
from service.cli.output import print_json
from service.cli.start import start
from service.config.settings import Settings
from service.errors import BusError, ContextBuilderError, MissingExtraError, StoreError

#: Seconds for a whole check. MCP servers have a shorter time limit of their own.
CHECK_SECONDS: Final = 60.0

#: The remedy for an error, by its class; the first match counts.
_ADVICE: Final[Mapping[type[ContextBuilderError], str]] = {
    BusError: "check that the server of bus.url runs, and its log",
    StoreError: "check store.url, and that it can be reached from here",
    ContextBuilderError: "correct the setting: ctxb config show",
}


def doctor(ctx: typer.Context, as_json: Json = False) -> None:
    """Check an installation: settings, bus, store, tokenizers, tools, prompts, HTTP, disks.

    ctxb doctor
    ctxb -c production.yml doctor --json

    Run the command where the workers run, with their settings. Each line says
    ok, warn or fail, with the cause and what to do. Nothing is changed, but MCP
    servers are started and list their tools. The exit code is 1 if a line says
    fail, and 3 if the settings can't be read.
    """
    findings = run_until_stopped(run_checks(start(ctx.obj, log_outdated=False)))
    if as_json:
        print_json(findings)
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
            cause = f"no result after {CHECK_SECONDS:g} s"
            findings.append(fail(name, cause, "check whether it hangs"))
        except MissingExtraError as error:
            advice = f"install the extra {error.extra}, or change the setting"
            findings.append(fail(name, error.detail, advice))
        except ContextBuilderError as error:
            advice = next(text for kind, text in _ADVICE.items() if isinstance(error, kind))
            findings.append(fail(name, error.detail, advice))
    return [without_secrets(finding) for finding in findings]
