"""The texts of a configuration: read at the start, and again when files change."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from prompts.identity import CORE_IDENTITY, PLAIN, QUOTING, WITHOUT_CAPABILITIES
from service.adapters.memory.bus import open_memory_bus
from service.adapters.prompts.watched import WatchedPrompts
from service.app import make_worker, open_builder
from service.config.content import PromptsSettings
from service.config.settings import Settings
from service.errors import PromptError
from service.observe.metrics import UNMEASURED, Metrics
from service.wire.request import BuildRequest
from tests.support import Noted


def watching(metrics: Metrics = UNMEASURED, **settings: Any) -> WatchedPrompts:
    """Read the texts of a configuration."""
    return WatchedPrompts(PromptsSettings.model_validate(settings), metrics)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have an empty home, and work next to it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_without_settings_the_shipped_text_stands() -> None:
    """No file is needed, and no reminder is due."""
    prompt = watching().current

    assert prompt.text() == CORE_IDENTITY
    assert prompt.injector.check(turn=1, tokens=10**9) == []


@pytest.mark.parametrize(
    ("settings", "identity"),
    [
        ({"identity": "nexus"}, CORE_IDENTITY),
        ({"identity": "nexus", "capabilities": "names"}, CORE_IDENTITY),
        ({"identity": "nexus", "capabilities": "none"}, WITHOUT_CAPABILITIES),
        ({"identity": "plain", "capabilities": "none"}, PLAIN),
        ({"identity": "none"}, ""),
        ({"identity": "none", "identity_file": "own.md"}, "You are Ada."),
    ],
)
def test_a_setting_chooses_the_shipped_identity(
    settings: dict[str, Any], identity: str, tmp_path: Path
) -> None:
    """A file takes precedence over it."""
    (tmp_path / "own.md").write_text("You are Ada.")

    assert watching(**settings).current.identity == identity


def test_all_parts_have_their_place(tmp_path: Path) -> None:
    """The identity, the layers around the project, sections by priority."""
    (tmp_path / "identity.md").write_text("\nYou are Ada.\n")
    (tmp_path / "rules.md").write_text("Never guess.\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "AGENTS.md").write_text("Boats.\n")
    (project / ".nexus3").mkdir()
    (project / ".nexus3" / "config.json").write_text("that of an agent: nothing that is read here")

    prompt = watching(
        identity_file="identity.md",
        project_folder="project",
        sections=[
            {"label": "Rules", "file": "rules.md", "priority": 5},
            {"label": "Role", "text": "You look after a harbour."},
        ],
        injections=[
            {"text": "Be brief.", "every_n_turns": 5},
            {"text": "Sum up.", "on_token_threshold": 50},
        ],
    ).current

    assert prompt.text() == (
        "You are Ada.\n\n"
        "# System Configuration\n\n"
        f"## Project Configuration\nSource: {project.resolve()}/AGENTS.md\n\nBoats.\n\n"
        "## Role\nYou look after a harbour.\n\n"
        f"## Rules\nNever guess.\n\n{QUOTING}"
    )
    assert prompt.injector.check(turn=5, tokens=50) == ["Be brief.", "Sum up."]


@pytest.mark.parametrize(
    "settings", [{"identity_file": "own.md"}, {"sections": [{"label": "a", "file": "own.md"}]}]
)
@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "there is no such file"), (b" \n", "is blank"), (b"\xff", "is not UTF-8")],
)
def test_a_file_that_is_named_has_to_say_something(
    settings: dict[str, Any], content: bytes | None, problem: str, tmp_path: Path
) -> None:
    """Else nothing starts: a service under the wrong instructions is worse than none."""
    if content is not None:
        (tmp_path / "own.md").write_bytes(content)
    with pytest.raises(PromptError, match=rf"own\.md: {problem}"):
        watching(**settings)


async def test_a_change_is_read_once(tmp_path: Path) -> None:
    """Without one nothing is read, and a touch is no change of the text."""
    path = tmp_path / "own.md"
    path.write_text("You are Ada.")
    prompts = watching(identity_file=path)
    before = prompts.current

    with capture_logs() as logs:
        await prompts.refresh()
        assert prompts.current is before
        os.utime(path, (1, 1))
        await prompts.refresh()
        assert prompts.current == before
        path.write_text("You are Bob.")
        await prompts.refresh()
        await prompts.refresh()

    assert prompts.current.identity == "You are Bob."
    assert [(each["event"], each["characters"]) for each in logs] == [
        ("prompts.reloaded", len(f"You are Bob.\n\n{QUOTING}"))
    ]


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        lambda path: path.write_text(""),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), path.symlink_to(path)),
    ],
)
async def test_what_cannot_be_read_leaves_the_last_text(
    spoil: Callable[[Path], object], tmp_path: Path
) -> None:
    """It is logged once, and what can be read again is taken up."""
    path, good = tmp_path / "own.md", tmp_path / "good.md"
    path.write_text("You are Ada.")
    prompts = watching(identity_file=path)

    with capture_logs() as logs:
        spoil(path)
        await prompts.refresh()
        await prompts.refresh()
        kept = prompts.current.identity
        if path.is_dir():
            path.rmdir()
        good.write_text("You are Bob.")
        good.replace(path)
        await prompts.refresh()

    assert (kept, prompts.current.identity) == ("You are Ada.", "You are Bob.")
    assert [each["event"] for each in logs] == ["prompts.unreadable", "prompts.reloaded"]
    assert str(path) in logs[0]["reason"]


async def test_attempts_to_read_again_are_counted(tmp_path: Path) -> None:
    """Those that failed each time, for as long as the fault is there; a touch is none."""
    path, metrics = tmp_path / "own.md", Noted()
    path.write_text("You are Ada.")
    prompts = watching(metrics, identity_file=path)

    for text in ("", "", "You are Bob.", "You are Bob."):
        path.write_text(text)
        await prompts.refresh()

    assert metrics.counted == [
        f"config_reloads {result}" for result in ("failed", "failed", "reloaded")
    ]


async def test_a_fault_that_passes_is_forgotten(tmp_path: Path) -> None:
    """The same fault later is logged again."""
    path = tmp_path / "own.md"
    path.write_text("You are Ada.")
    prompts = watching(identity_file=path)

    with capture_logs() as logs:
        for text in ("", "You are Ada.", ""):
            path.write_text(text)
            await prompts.refresh()

    assert [each["event"] for each in logs] == ["prompts.unreadable"] * 2


async def test_a_new_instruction_file_is_found(tmp_path: Path, home: Path) -> None:
    """In the home as in the project, and one that goes is gone."""
    (tmp_path / "project").mkdir()
    prompts = watching(project_folder="project")
    texts = [prompts.current.sections]
    own = home / ".nexus3" / "NEXUS.md"
    own.parent.mkdir()
    own.write_text("From home.")
    await prompts.refresh()
    texts.append(prompts.current.sections)
    own.unlink()
    await prompts.refresh()
    texts.append(prompts.current.sections)

    assert ["From home." in text for text in texts] == [False, True, False]


async def test_a_builder_in_process_reads_its_texts(tmp_path: Path) -> None:
    """At the start, and again where it is asked to; a wrong file keeps it from opening."""
    path = tmp_path / "own.md"
    path.write_text("You are Ada.")
    settings = Settings(prompts=PromptsSettings(identity_file=path))
    request = BuildRequest.model_validate({"owner_key": "o", "content": {"current_input": "hi"}})

    async with open_builder(settings) as builder:
        assert builder.sources.prompts is not None
        first = (await builder.build(request)).content.messages[0]
        path.write_text("You are Bob.")
        await builder.sources.prompts.refresh()
        second = (await builder.build(request)).content.messages[0]
    assert (first["content"], second["content"]) == (
        f"You are Ada.\n\n{QUOTING}",
        f"You are Bob.\n\n{QUOTING}",
    )

    path.unlink()
    with pytest.raises(PromptError):
        async with open_builder(settings):
            pass


async def test_a_worker_takes_changes_up(tmp_path: Path) -> None:
    """It looks at the files by itself, however often the settings say."""
    path = tmp_path / "own.md"
    path.write_text("You are Ada.")
    texts = PromptsSettings(identity_file=path, reload_seconds=0.01)
    request = BuildRequest.model_validate({"owner_key": "o", "content": {"current_input": "hi"}})
    stop = asyncio.Event()

    async with (
        open_memory_bus() as bus,
        open_builder(Settings(prompts=texts)) as builder,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(make_worker(bus, builder).run(stop))
        path.write_text("You are Bob.")
        async with asyncio.timeout(60):
            while True:
                content = (await builder.build(request)).content
                if content.messages[0]["content"].startswith("You are Bob."):
                    break
        stop.set()
