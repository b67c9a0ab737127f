"""Options that several commands share."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Command = Callable[..., None]


def takes(kind: type) -> Callable[[Command], Command]:
    """Let a command have the fields of a dataclass as its options, which it gets as ``asked``."""
    wanted = inspect.signature(kind).parameters

    def decorated(command: Command) -> Command:
        own = inspect.signature(command).parameters

        @functools.wraps(command)
        def called(**given: Any) -> None:  # noqa: ANN401 - whatever the command declares
            asked = kind(**{name: given.pop(name) for name in wanted})
            command(asked=asked, **given)

        others = [parameter for name, parameter in own.items() if name != "asked"]
        keyword_only = [each.replace(kind=each.KEYWORD_ONLY) for each in others]
        # typer reads the signature to learn the options
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*wanted.values(), *keyword_only]
        )
        return called

    return decorated


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]


def check_owner(key: str | None) -> str | None:
    """Return an owner key that the wire takes; raises `typer.BadParameter` for others."""
    if key is not None:
        from service.wire.payload import MAX_OWNER_KEY

        if not 1 <= len(key) <= MAX_OWNER_KEY:
            raise typer.BadParameter(f"a key has 1 to {MAX_OWNER_KEY} characters")
    return key


Owner = Annotated[
    str,
    typer.Option("--owner", "-o", metavar="KEY", callback=check_owner, help="Whose history it is."),
]

NamedOwner = Annotated[
    str,
    typer.Argument(metavar="OWNER", callback=check_owner, help="The key of whose history it is."),
]

Conversation = Annotated[
    str | None,
    typer.Option("--conversation", metavar="ID", help="One conversation, not all of the owner's."),
]

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Settings in YAML. Also: CTXB_CONFIG, ./config.yml."
    ),
]

Level = Literal["debug", "info", "warning", "error", "critical"]
LogLevel = Annotated[
    Level | None,
    typer.Option(
        help=(
            "What to log: info for the worker, error for the demo, else warning."
            " Also: CTXB_LOG__LEVEL."
        ),
        show_choices=False,
        metavar="LEVEL",
    ),
]

Format = Literal["auto", "json", "console"]
LogFormat = Annotated[
    Format | None,
    typer.Option(
        help="auto, json or console. Also: CTXB_LOG__FORMAT.", show_choices=False, metavar="FORMAT"
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What was given before the command's name."""

    config: Path | None = None
    log_level: Level | None = None
    log_format: Format | None = None
