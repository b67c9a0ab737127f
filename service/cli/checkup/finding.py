"""What a check finds, and what is to be done about it."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

from service.config.settings import Settings

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is as it should be, or isn't."""

    #: What was looked at.
    what: str
    state: State
    found: str
    #: What to do, where it isn't as it should be.
    advice: str = ""


#: Looks at a part of an installation; raises `ContextBuilderError` where that can't be used.
Check = Callable[[Settings], AsyncIterator[Finding]]


def ok(what: str, found: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(what=what, state="ok", found=found)


def warn(what: str, found: str, advice: str) -> Finding:
    """Return that something may become a problem, or is one in production."""
    return Finding(what=what, state="warn", found=found, advice=advice)


def fail(what: str, found: str, advice: str) -> Finding:
    """Return that something doesn't work."""
    return Finding(what=what, state="fail", found=found, advice=advice)
