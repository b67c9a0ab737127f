"""Options that several commands share, and sets of options."""

import functools
import inspect
from collections.abc import Callable
from itertools import chain
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from service.wire.payload import MAX_OWNER_KEY


def check_owner(key: str | None) -> str | None:
    """Return an owner key if requests may have it; raises `typer.BadParameter` if not."""
    if key is not None and not 1 <= len(key) <= MAX_OWNER_KEY:
        raise typer.BadParameter(f"a key has 1 to {MAX_OWNER_KEY} characters")
    return key


def owner_option(text: str) -> OptionInfo:
    """Return an option for an owner's key."""
    option: OptionInfo = typer.Option(
        "--owner", "-o", metavar="KEY", callback=check_owner, help=text
    )
    return option


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]

Owner = Annotated[str, owner_option("The owner's key.")]

OwnerArgument = Annotated[
    str, typer.Argument(metavar="OWNER", callback=check_owner, help="The owner's key.")
]


class OwnerCommand(TyperCommand):
    """A command with an `OwnerArgument`, which may also be given as the option `Owner`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own
        """Move the option's value to the argument's place, the first."""
        split = (arg.split("=", 1) if arg.startswith("--owner=") else [arg] for arg in args)
        args = [*chain.from_iterable(split)]
        for index, argument in enumerate(args[:-1]):
            if argument in {"--owner", "-o"}:
                args = [args[index + 1], *args[:index], *args[index + 2 :]]
                break
        return super().parse_args(ctx, args)


ShowOwners = Annotated[
    bool, typer.Option("--owners", help="Print owner keys instead of their hashes.")
]

Conversation = Annotated[
    str | None, typer.Option("--conversation", metavar="ID", help="Only this conversation.")
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]


def takes(options_class: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the fields of a dataclass as options; it gets them as ``options``.

    typer learns a command's options from its signature. It has no way to share a set of them, so
    the signature is replaced, as `inspect.signature` allows. Tests run the commands with it.
    """
    shared = inspect.signature(options_class).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(**values: Any) -> None:  # noqa: ANN401 - whatever types the options have
            options = options_class(**{name: values.pop(name) for name in shared})
            command(options=options, **values)

        signature = inspect.signature(command)
        own = [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for name, parameter in signature.parameters.items()
            if name != "options"
        ]
        parameters = [*shared.values(), *own]
        called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return called

    return decorate
