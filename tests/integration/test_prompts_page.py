"""What the documents say of prompts: its names and examples are ours."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from formatters.model import Facts
from formatters.this_moment import this_moment
from formatters.times import parse_timestamp, to_local_time
from service.config.content import PromptsSettings

DOCS = Path(__file__).parents[2] / "docs"


def fences(page: str, language: str) -> list[str]:
    """Return the code blocks of a language."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def porting_example(name: str) -> str:
    """Return the example in Python that imports a name."""
    (example,) = (body for body in fences("porting.md", "python") if name in body)
    return example


def run(example: str) -> dict[str, Any]:
    """Run an example, and return what it made."""
    made: dict[str, Any] = {}
    exec(compile(example, "porting.md", "exec"), made)  # noqa: S102 - our own text
    return made


def test_sections_and_reminders_are_as_in_neuron_context() -> None:
    """The example renders the two sections, and both reminders are due."""
    made = run(porting_example("SystemInjector"))

    assert made["system_prompt"] == (
        "## Role\nYou are a senior Python engineer.\n\n## Output rules\nAlways show code."
    )
    assert len(made["reminders"]) == 2


def test_loaders_are_as_in_nexus3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example finds the home's prompt and the project's."""
    own = tmp_path / "home" / ".nexus3" / "NEXUS.md"
    own.parent.mkdir(parents=True)
    own.write_text("Mine.")
    (tmp_path / "NEXUS.md").write_text("The project's.")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    made = run(porting_example("PromptLoader"))

    printed = capsys.readouterr().out
    assert f"Personal from: {own}\nProject from: {tmp_path / 'NEXUS.md'}\n" in printed
    assert made["for_a_server"].endswith("\nMode: HTTP JSON-RPC Server")
    assert "Mine." in made["layers"].system_prompt


def test_the_settings_of_the_page_can_be_used() -> None:
    """Every YAML block is one of `prompts`."""
    blocks = [yaml.safe_load(block)["prompts"] for block in fences("context.md", "yaml")]
    settings = [PromptsSettings.model_validate(block) for block in blocks]

    assert [len(each.sections) for each in settings] == [2, 0, 0]
    assert [len(each.injections) for each in settings] == [0, 0, 2]


def test_a_reminder_is_where_the_page_shows_it() -> None:
    """The block of the page is what the formatter makes."""
    moment = parse_timestamp("2025-12-10T08:00:00Z")
    assert moment is not None
    facts = Facts(
        current_input="Where did we put the key?",
        now=to_local_time(moment, -480),
        injections=("Keep your answers short.",),
    )
    assert f"{this_moment(facts).text}\n" in fences("context.md", "text")
