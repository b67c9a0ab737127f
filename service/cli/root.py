"""The root command: its global options, and its subcommands, which are loaded lazily.

A command's module is imported when the command is named, so `ctxb --help` and a command of its own
load nothing of the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
import typer.main

from service.cli.exits import EPILOG, Command, Context, ErrorsBecomeExits
from service.cli.healthcheck import probe

#: By name: the first line of its help.
COMMANDS: Final[Mapping[str, str]] = {
    "demo": "Take a tour: start a bus and a worker, send requests, show the contexts.",
    "build": "Build one context here, without a bus, and print its messages.",
    "recall": "Print earlier messages that a context left out, found by words, ids or position.",
    "diff": "Compare two builds, or one request built in two ways.",
    "worker": "Answer the requests of a bus, until SIGTERM or Ctrl-C.",
    "send": ("Send a request over the bus, wait for a worker's answer, and print a summary of it."),
    "tail": "Print builds and events as they happen, until Ctrl-C.",
    "stats": (
        "Count waiting and running requests, workers and dead letters; show the store's size."
    ),
    "doctor": (
        "Check an installation: settings, bus, store, tokenizers, tools, prompts, HTTP, disks."
    ),
    "bus": "Show or set the number of request streams, and repair streams.",
    "dead": "List, show, retry and drop dead letters.",
    "history": "Import, export, show, prune and erase conversations.",
    "tools": "List and check tool definitions.",
    "models": "List the limits of models.",
    "schema": "Print the wire contract as documents.",
    "config": "Write, show and check the settings.",
    "db": "Check the store's schema, and upgrade it.",
}
#: The modules of `service.cli` that don't have the name of their command.
MODULES: Final[Mapping[str, str]] = {"demo": "demo.command", "build": "request", "send": "request"}
HELP_NAMES: Final = ["-h", "--help"]


class LazyCommands(ErrorsBecomeExits):
    """The outermost group, whose commands are placeholders until they are named."""

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command, list[str]]:
        """Find the command that the arguments name, and load it in place of its placeholder."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in COMMANDS:
            command = self.commands[name] = load_command(name)
        return name, command, rest

    def get_params(self, ctx: Context) -> list[Any]:
        """Return its own options."""
        return _hide_types_of_flags(super().get_params(ctx))


def load_command(name: str) -> Command:
    """Import the module of a command, and return the command."""
    module = import_module(f"{__package__}.{MODULES.get(name, name)}")
    command = getattr(module, name)
    # with a callback typer makes a group, also of a single command
    parent = typer.Typer(add_completion=False, callback=lambda: None)
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name, help=COMMANDS[name])
    else:
        parent.command(name)(command)
    group: Command = typer.main.get_command(parent)
    _describe_flags(group)
    return group.commands[name]


def _describe_flags(command: Command) -> None:
    """Hide the types of the flags of a command and its own commands."""
    # these names are inherited, but the flag of help is made here
    _hide_types_of_flags(command.get_params(typer.Context(command, help_option_names=HELP_NAMES)))
    for each in getattr(command, "commands", {}).values():
        _describe_flags(each)


def _hide_types_of_flags(options: list[Any]) -> list[Any]:
    """Return options that show no `<bool>` in help: flags take no value."""
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The YAML file with settings. Default: CTXB_CONFIG, else config.yml here.",
    ),
]

LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"] | None,
    typer.Option(
        metavar="LEVEL",
        help=(
            "Lowest level to log; default: info for the worker, error for the demo, else warning."
            " Also: CTXB_LOG__LEVEL."
        ),
    ),
]

LogFormat = Annotated[
    Literal["auto", "json", "console"] | None,
    typer.Option(metavar="FORMAT", help="auto, json or console. Also: CTXB_LOG__FORMAT."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """The options that precede a command."""

    config: Path | None = None
    log_level: str | None = None
    log_format: str | None = None


app = typer.Typer(
    name="ctxb",
    cls=LazyCommands,
    epilog=EPILOG,
    no_args_is_help=True,
    # a traceback in the usual form, without the values of variables: they hold people's words
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_NAMES},
)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"ctxb {version('ctxb')}")
        raise typer.Exit


@app.callback()
def common_options(
    ctx: typer.Context,
    config: ConfigFile = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Build the context of an LLM call: history, tools and profile, fitted into a token budget.

    ctxb demo                                          a tour of it all
    ctxb build --owner ana --input "Hello" --explain   without a bus
    ctxb worker                                        answer requests
    ctxb send --owner ana --input "Hello"              ask a worker
    ctxb doctor                                        what is wrong here
    """
    ctx.obj = CommonOptions(config=config, log_level=log_level, log_format=log_format)


def _placeholder() -> None:
    """Take a command's place in the list of commands, until `LazyCommands` loads it."""


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(_placeholder)


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def healthcheck(ctx: typer.Context) -> None:
    """Check by its heartbeat file that a worker is alive."""
    raise typer.Exit(probe(ctx.args))
