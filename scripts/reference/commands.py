"""The page of all commands, with their arguments and options, from the command line itself."""

import re
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import Any, Final

import typer.main

from service.cli.exits import EPILOG
from service.cli.healthcheck import probe
from service.cli.root import app

_HEAD: Final = """\
# Commands

Every command of `ctxb` with its arguments and options.
This page is written by `make reference`, from what the commands say of themselves with `--help`.
[operations.md](operations.md#configuration) says what they read their settings from.
"""

#: A line of a command's help that shows a call; variables may stand before it.
_EXAMPLE: Final = re.compile(r"(?:CTXB_\w+=\S+ )*ctxb ")

#: Types as typer shows them, in words.
_TYPES: Final = {
    "str": "text",
    "int": "integer",
    "int range": "integer",
    "path": "path",
    "list[Path]": "paths",
    "list[str]": "texts",
    "list[int]": "integers",
}

# typer vendors Click, whose types it does not export
Command = Any


def page() -> str:
    """Return the page."""
    root = command_line()
    context = root.make_context("ctxb", [], resilient_parsing=True)
    return "\n".join(
        [
            _HEAD,
            "## Before any command\n",
            _table(root, context, "option"),
            *_sections(root, "ctxb"),
            "## Exit codes\n",
            *_exit_codes(),
            "",
        ]
    )


def command_line() -> Command:
    """Return `ctxb` with all of its commands loaded."""
    root: Command = typer.main.get_command(app)
    context = root.make_context("ctxb", [], resilient_parsing=True)
    for name in root.list_commands(context):
        root.resolve_command(context, [name])
    return root


def _exit_codes() -> Iterator[str]:
    """Yield a line a code."""
    told = " ".join(EPILOG.partition("\n\n")[0].split())
    for line in told.removeprefix("Exit codes: ").removesuffix(".").split(", "):
        code, _, meaning = line.partition(" ")
        yield f"- **{code}:** {meaning}"


def _sections(group: Command, path: str) -> Iterator[str]:
    """Yield the commands of a group, and below it those of its groups."""
    for name, command in group.commands.items():
        yield _section(command, f"{path} {name}")
        if hasattr(command, "commands"):
            yield from _sections(command, f"{path} {name}")


def _section(command: Command, path: str) -> str:
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"{'#' * path.count(' ')}# {path}\n", *_paragraphs(command.help or "")]
    if not hasattr(command, "commands"):
        parts.append(f"Usage: `{usage}`\n")
    parts += [_table(command, context, kind) for kind in ("argument", "option")]
    if command.context_settings.get("ignore_unknown_options"):
        parts.append(_own_options())
    return "\n".join(filter(None, parts))


def _own_options() -> str:
    """Name the options of the probe, which reads its arguments itself to load nothing else."""
    with redirect_stdout(StringIO()) as told, suppress(SystemExit):
        probe(["--help"])
    names = re.findall(r"^ +(--[\w-]+)", told.getvalue(), flags=re.MULTILINE)
    return f"Options: {', '.join(f'`{name}`' for name in names)}; `--help` says more.\n"


def _paragraphs(text: str) -> Iterator[str]:
    """Yield what a command says of itself, its examples as blocks of code."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        if all(map(_EXAMPLE.match, lines)):
            shown = "\n".join(f"$ {line}" for line in lines)
            yield f"```console\n{shown}\n```\n"
        else:
            text = " ".join(lines).replace("``", "`")
            yield re.sub(r"\bdocs/([a-z-]+\.md)\b", r"[\1](\1)", text) + "\n"


def _table(command: Command, context: Command, kind: str) -> str:
    """Return the table of a command's arguments or options; nothing where it has none."""
    rows = [
        _row(each, context)
        for each in command.params
        if each.param_type_name == kind and not each.hidden and each.name != "help"
    ]
    if not rows:
        return ""
    head = [f"| {kind.capitalize()} | Takes | Default | What |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows, ""])


def _row(each: Command, context: Command) -> str:
    names = " ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
    told = f"`{each.default}`" if each.default not in (None, False, ()) else ""
    default = "required" if each.required else told
    return f"| {names} | {_takes(each, context)} | {default} | {each.help or ''} |"


def _takes(each: Command, context: Command) -> str:
    """Return what is taken; nothing where there is nothing but on and off."""
    if getattr(each, "is_flag", False):
        return ""
    shown, _ = each.get_help_record(context) or ("", "")
    if kind := re.search(r"<(.+)>$", shown):
        choices = kind[1].split("|")
        return ", ".join(f"`{name}`" for name in choices) if choices[1:] else _TYPES[kind[1]]
    return f"`{shown.rpartition(' ')[2]}`"
