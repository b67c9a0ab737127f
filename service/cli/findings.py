"""The findings of ``ctxb doctor``, and how they are printed."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

from rich.text import Text

from service.cli.output import console, printable, table
from service.observe.logs import mask_urls

State = Literal["ok", "warn", "fail"]

_STYLES: Final[dict[State, str]] = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    #: The subject of the check.
    what: str
    state: State = field(kw_only=True)
    found: str
    #: The remedy; empty if it is ok.
    advice: str = ""


#: Something is as it should be; may become a problem, or is one in production; doesn't work.
ok: Final = partial(Finding, state="ok")
warn: Final = partial(Finding, state="warn")
fail: Final = partial(Finding, state="fail")


def without_secrets(finding: Finding) -> Finding:
    """Return a finding that can be printed.

    A server's error message may contain a URL with its password, or what it was sent.
    """
    what, found, advice = (
        printable(mask_urls(text)) for text in (finding.what, finding.found, finding.advice)
    )
    return replace(finding, what=what, found=found, advice=advice)


def print_findings(findings: Iterable[Finding]) -> None:
    """Print a table, and the number of findings of each state."""
    counts: dict[State, int] = {"ok": 0, "warn": 0, "fail": 0}
    rows = []
    for finding in findings:
        counts[finding.state] += 1
        result = Text(finding.found)
        if finding.advice:
            result.append(f"\n→ {finding.advice}", style="bold")
        rows.append((Text(finding.state, style=_STYLES[finding.state]), finding.what, result))
    console().print(table("", "Checked", "Result, and what to do", rows=rows))
    console().print(", ".join(f"{number} {state}" for state, number in counts.items()))
