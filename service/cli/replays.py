"""Build again what a worker built, and show people what came of it."""

from collections.abc import Iterator
from typing import Any

from service.app import open_builder, open_bus
from service.audit.compare import NameChanges
from service.audit.replay import Difference, NotReplayableError, Replay, Versions, replay
from service.audit.store import Filing
from service.cli.output import format_ids, print_text
from service.config.settings import Settings


async def replayed(settings: Settings, build_id: str, request: dict[str, Any] | None) -> Replay:
    """Build again by the manifest on the bus; raises as `replay` does, and `BusError`."""
    async with open_bus(settings) as connected:
        manifest = await Filing(connected.bus.reports, settings).find(build_id)
    if manifest is None:
        raise NotReplayableError(
            f"the bus has no manifest of {build_id!r}: it has expired, or no worker built it"
        )
    async with open_builder(settings) as builder:
        return await replay(manifest, builder, request)


def print_replay(result: Replay) -> None:
    """Print whether it came to the same, and a line for each thing that has changed."""
    if result.identical:
        print_text(f"identical: {result.build_id} built again sends the same messages and tools")
    else:
        print_text(f"different: {result.build_id} built again does not send the same")
    for line in (*_effects(result), *_causes(result)):
        print_text(f"  {line}")


def _effects(result: Replay) -> Iterator[str]:
    for message in result.messages:
        yield _difference(message)
    for each in result.decisions:
        then, now = (" ".join(filter(None, side)) or "undecided" for side in (each.then, each.now))
        yield f"row {each.message_id}: {then} then, {now} now"
    yield from _names("warning", result.warnings, ("new", "gone", "changed"))


def _causes(result: Replay) -> Iterator[str]:
    yield from _grouped("rows changed", result.rows.changed)
    yield from _grouped("rows erased", result.rows.removed)
    yield from _grouped("rows since then, left out", result.rows.added)
    yield from _names("tool", result.tools, ("added", "removed", "changed"))
    for changed, what in (
        (result.input, "the input's row has another text"),
        (result.profile, "the profile is another"),
        (result.strategy, "the strategy or a parameter of it is another"),
    ):
        if changed:
            yield what
    for path in result.settings:
        yield f"setting {path}: not the same here"
    yield from _version("guard", result.guard)
    yield from _version("context-builder", result.package)


def _difference(message: Difference) -> str:
    name = f"[{message.block}]" if message.block else message.role
    if message.then is None:
        return f"message {name}: sent only now"
    if message.now is None:
        return f"message {name}: sent only then"
    return f"message {message.then + 1}, {name}: other words"


def _grouped(what: str, ids: tuple[str, ...]) -> Iterator[str]:
    if ids:
        yield f"{what}: {format_ids(ids)}"


def _names(what: str, names: NameChanges, words: tuple[str, str, str]) -> Iterator[str]:
    for word, each in zip(words, (names.added, names.removed, names.changed), strict=True):
        for name in each:
            yield f"{what} {word}: {name}"


def _version(what: str, versions: Versions | None) -> Iterator[str]:
    if versions:
        yield f"{what}: version {versions.then} then, {versions.now} now"
