"""The command line as a whole: what stands before a command, and which commands there are."""

from importlib.metadata import version
from typing import Annotated

import typer

from service.cli.bench import bench
from service.cli.build import build
from service.cli.bus import bus
from service.cli.config import config
from service.cli.db import db
from service.cli.dead import dead
from service.cli.demo import demo
from service.cli.diff import diff
from service.cli.doctor import doctor
from service.cli.exits import EPILOG, ErrorsBecomeExits
from service.cli.healthcheck import probe
from service.cli.history import history
from service.cli.models import models
from service.cli.options import Common, ConfigFile, LogFormat, LogLevel
from service.cli.replay import replay
from service.cli.schema import schema
from service.cli.send import send
from service.cli.stats import stats
from service.cli.tail import tail
from service.cli.tools import tools
from service.cli.worker import worker

app = typer.Typer(
    name="ctxb",
    cls=ErrorsBecomeExits,
    epilog=EPILOG,
    no_args_is_help=True,
    # a traceback in the usual form, without the values of variables: they hold people's words
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"context-builder {version('context-builder')}")
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
    ctx.obj = Common(config=config, log_level=log_level, log_format=log_format)


app.command()(demo)
app.command()(build)
app.command()(diff)
app.command()(replay)
app.command()(worker)
app.command()(send)
app.command()(tail)
app.command()(stats)
app.command()(doctor)
app.command()(bench)
app.add_typer(bus, name="bus")
app.add_typer(dead, name="dead")
app.add_typer(history, name="history")
app.add_typer(tools, name="tools")
app.add_typer(models, name="models")
app.add_typer(schema, name="schema")
app.add_typer(config, name="config")
app.add_typer(db, name="db")


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def healthcheck(ctx: typer.Context) -> None:
    """Tell whether a worker is alive, by its heartbeat file."""
    raise typer.Exit(probe(ctx.args))
