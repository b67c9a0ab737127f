"""Prompts, instructions and configuration in files."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompts.environment import SystemFacts
from prompts.layers import NO_PROMPT
from service.adapters.files import MAX_FILE_BYTES, read_object, read_text
from service.adapters.prompts.folders import ContextLoader
from service.adapters.prompts.loader import (
    DEFAULT_PROMPT,
    FilePromptSource,
    PromptLoader,
    get_system_info,
    system_facts,
)
from service.adapters.prompts.watched import WatchedPrompts
from service.config.content import PromptsSettings
from service.errors import PromptError


def write(path: Path, text: str) -> Path:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home of our own, with a project in it as the working directory."""
    project = tmp_path / "home" / "work" / "boats"
    project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(project)
    return tmp_path / "home"


# --- one file --------------------------------------------------------------------------------


def test_text_is_read_as_it_is_meant(tmp_path: Path) -> None:
    """Without the mark that some editors put first, and with plain line ends."""
    path = tmp_path / "a.md"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\n")

    assert read_text(path) == "one\ntwo\n"


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    """So is one below a file, and one that a link leads to in vain."""
    write(tmp_path / "file", "x")
    (tmp_path / "link").symlink_to(tmp_path / "gone")

    for name in ("gone", "file/below", "link"):
        assert read_text(tmp_path / name) is None


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    """Folders, pipes, links in a circle, bytes that are no UTF-8, and files that are too large."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "bytes").write_bytes(b"ok\xff")
    (tmp_path / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "full").write_bytes(b"x" * MAX_FILE_BYTES)
    for path, problem in {
        tmp_path: "cannot be read: not a regular file",
        tmp_path / "pipe": "cannot be read: not a regular file",
        tmp_path / "circle": "cannot be read",
        tmp_path / "bytes": "is not UTF-8 at byte 2",
        tmp_path / "large": f"has more than {MAX_FILE_BYTES} bytes",
        Path("a\0b"): "cannot be read",
    }.items():
        with pytest.raises(PromptError) as refused:
            read_text(path)
        assert refused.value.detail.startswith(f"{path}: {problem}")

    assert len(read_text(tmp_path / "full") or "") == MAX_FILE_BYTES


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": NaN}', "[" * 100_000, '{"a":' * 99])
def test_what_is_no_object_is_refused(text: str, tmp_path: Path) -> None:
    """The error names the file, and is a ValueError too, as NEXUS3's was."""
    path = write(tmp_path / "config.json", text)
    with pytest.raises(ValueError, match=r"config\.json: ") as refused:
        read_object(path)

    assert isinstance(refused.value, PromptError)


def test_a_blank_file_holds_no_object(tmp_path: Path) -> None:
    """An empty configuration is none."""
    assert read_object(write(tmp_path / "config.json", " \n")) is None
    assert read_object(tmp_path / "gone.json") is None


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing but our own error comes out."""
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(content)
    for read in (read_text, read_object):
        try:
            read(path)
        except PromptError as error:
            assert str(path) in error.detail


# --- PromptLoader ----------------------------------------------------------------------------


def test_the_first_personal_prompt_counts(home: Path) -> None:
    """The example of NEXUS3: custom sources, of which the first is missing."""
    custom = write(home / "custom" / "NEXUS.md", "P\n")
    project = write(Path("NEXUS.md").absolute(), "Q\n")
    sources = [
        FilePromptSource(home / "gone" / "NEXUS.md"),
        FilePromptSource(custom),
        FilePromptSource(home / ".nexus3" / "NEXUS.md"),
    ]

    loader = PromptLoader(personal_sources=sources)
    assert (loader.personal_path, loader.project_path, loader.loaded_from) == (None, None, None)
    loaded = loader.load()

    assert loaded.content.startswith(
        "# Personal Configuration\nP\n\n# Project Configuration\nQ\n\n# Environment\n"
    )
    assert loaded.personal_path == custom
    assert loaded.project_path == project
    assert (loader.personal_path, loader.project_path) == (custom, project)
    assert loader.loaded_from == custom


def test_without_sources_the_home_is_asked(home: Path) -> None:
    """Then comes the prompt that is shipped; a project needs none."""
    loader = PromptLoader()

    shipped = loader.load()
    own = write(home / ".nexus3" / "NEXUS.md", "Mine")
    found = loader.load()

    assert shipped.personal_path == DEFAULT_PROMPT
    assert shipped.content.startswith("# Personal Configuration\nYou are an assistant")
    assert (shipped.project_path, found.project_path) == (None, None)
    assert (found.personal_path, "Mine\n\n# Environment" in found.content) == (own, True)


def test_an_empty_file_is_a_choice(home: Path) -> None:
    """It keeps the shipped prompt away, and gets no heading."""
    own = write(home / ".nexus3" / "NEXUS.md", "")

    loaded = PromptLoader().load()

    assert loaded.personal_path == own
    assert loaded.content.startswith(f"{NO_PROMPT}\n\n# Environment\n")


def test_who_has_no_home_has_no_prompt_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container whose user is a number."""

    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    monkeypatch.chdir(tmp_path)

    assert PromptLoader().load().personal_path == DEFAULT_PROMPT
    assert ContextLoader(tmp_path, ancestors=0).layers()[0].prompt == ""


def test_a_source_may_be_anything(home: Path) -> None:
    """What loads and has a path is a source; no file need be behind it."""

    class Variable:
        path = None

        def load(self) -> str | None:
            return "From a variable"

    loaded = PromptLoader(personal_sources=[], project_source=Variable()).load(is_repl=False)

    assert loaded.content.startswith("# Project Configuration\nFrom a variable\n\n# Environment\n")
    assert loaded.content.endswith("\nMode: HTTP JSON-RPC Server")
    assert (loaded.personal_path, loaded.project_path) == (None, None)


def test_a_prompt_that_cannot_be_read_is_no_missing_one(home: Path) -> None:
    """Falling back without a word would run an agent under the wrong instructions."""
    (home / ".nexus3" / "NEXUS.md").mkdir(parents=True)
    with pytest.raises(PromptError, match=r"NEXUS\.md: cannot be read: not a regular file"):
        PromptLoader().load()


# --- the machine -----------------------------------------------------------------------------


def test_the_facts_are_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Working directory, system and terminal are found out again each time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM_PROGRAM", "tmux")
    monkeypatch.setenv("TERM", "screen")

    text = get_system_info()

    assert f"\nWorking directory: {tmp_path}\n" in text
    assert "\nTerminal: tmux (screen)\n" in text
    assert system_facts().release


def test_given_facts_take_precedence_over_those_of_the_machine() -> None:
    """A test, or an agent for another machine, needs no machine."""
    text = get_system_info(is_repl=False, facts=SystemFacts(working_directory="/there"))
    assert text.startswith("# Environment\nWorking directory: /there\nOperating system: unknown\n")


def test_what_cannot_be_found_out_is_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is gone and a distribution without a name stop nobody."""

    def unnamed() -> dict[str, str]:
        raise OSError("no os-release")

    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr("platform.freedesktop_os_release", unnamed)

    facts = system_facts()

    assert (facts.working_directory, facts.distribution) == ("", "")


# --- ContextLoader ---------------------------------------------------------------------------


def test_layers_come_from_the_farthest_to_the_nearest(home: Path) -> None:
    """The home's, those of the folders above the project, the project's."""
    paths = [
        write(home / ".nexus3" / "NEXUS.md", "G"),
        write(home / "AGENTS.md", "H"),
        write(home / "work" / "CLAUDE.md", "W"),
        write(home / "work" / "boats" / "NEXUS.md", "L"),
    ]

    loaded = ContextLoader().load()

    assert [layer.label for layer in loaded.layers] == [
        "global",
        "ancestor:home",
        "ancestor:work",
        "local",
    ]
    assert loaded.sources.prompts == tuple(path.resolve() for path in paths)
    text = loaded.system_prompt
    assert f"## Global Configuration\nSource: {paths[0].resolve()}\n\nG\n\n## Ancestor" in text
    places = [text.index(f"\n\n{word}\n\n") for word in "GHWL"]
    assert places == sorted(places)
    assert "\n\n# Environment\nWorking directory: " in text


def test_a_subagent_has_what_its_parent_has(home: Path) -> None:
    """With its own instructions last, once, and its own folder."""
    write(home / "work" / "NEXUS.md", "Parent")
    folder = home / "work" / "sub"
    parent = ContextLoader(home / "work", ancestors=0).load()
    sub = ContextLoader(folder, ancestors=0)
    folder.mkdir(parents=True, exist_ok=True)

    bare = sub.load_for_subagent(parent)
    assert bare.startswith("# System Configuration\n\n## Project Configuration\nSource: ")
    assert bare.count("# Environment") == 1
    assert f"\nWorking directory: {folder}\n" in bare
    own = write(folder / "NEXUS.md", "Own")
    prompt = sub.load_for_subagent(parent)
    assert f"\n\nParent\n\n## Subagent Configuration\nSource: {own.resolve()}\n\nOwn\n\n" in prompt
    assert ContextLoader(home / "work").load_for_subagent(parent) == parent.system_prompt
    assert sub.load_for_subagent() == sub.load(is_repl=False).system_prompt


def test_of_several_instruction_files_the_first_name_counts(home: Path) -> None:
    """The order can be chosen; our folder of a project takes precedence over the project."""
    project = Path.cwd()
    write(project / "README.md", "readme")
    write(project / "AGENTS.md", "agents")

    def local(**options: list[str]) -> str:
        return ContextLoader(project, **options).layers()[-1].prompt  # type: ignore[arg-type]  # a test's own

    assert local() == "agents"
    assert local(instruction_files=["README.md", "AGENTS.md"]) == "readme"
    assert local(instruction_files=["NEXUS.md", "CLAUDE.md"]) == ""
    write(project / ".nexus3" / "README.md", "ours")
    assert local() == "ours"


def test_a_readme_is_the_fallback(home: Path) -> None:
    """Where there is no other instruction file."""
    write(Path("README.md"), "readme")

    assert "\n\nreadme\n\n# Environment" in ContextLoader().load().system_prompt


def test_configuration_and_servers_are_merged(home: Path) -> None:
    """From files in the folders of ours; servers in either of the forms that are in use."""
    write(home / ".nexus3" / "config.json", '{"model": {"name": "a", "size": 1}, "skills": [1]}')
    write(Path(".nexus3/config.json"), '{"model": {"name": "b"}, "skills": [2]}')
    listed = {"servers": [{"name": "git", "command": "old"}, {"name": "web", "url": "u"}]}
    write(home / ".nexus3" / "mcp.json", json.dumps(listed))
    write(Path(".nexus3/mcp.json"), '{"mcpServers": {"git": {"command": "new"}}}')

    loaded = ContextLoader().load()

    assert loaded.merged_config == {"model": {"name": "b", "size": 1}, "skills": [2]}
    assert loaded.mcp_servers == {"git": {"command": "new"}, "web": {"url": "u"}}
    assert loaded.sources.mcp_servers["git"] == Path(".nexus3/mcp.json").resolve()


def test_the_home_is_no_layer_twice(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the project is the home, the folder of ours in it is the global layer only."""
    write(home / ".nexus3" / "NEXUS.md", "G")
    write(home / ".nexus3" / "config.json", '{"a": 1}')
    write(home / "config.json", "that of something else")
    monkeypatch.chdir(home)

    loaded = ContextLoader(ancestors=0).load()

    assert loaded.system_prompt.count("\nG\n") == 1
    assert len(loaded.sources.configs) == 1


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("config.json", "{no", "not JSON"),
        ("config.json", "[]", "must be a JSON object"),
        ("mcp.json", '{"mcpServers": []}', "mcpServers must be an object"),
        ("mcp.json", '{"servers": {}}', "servers a list"),
        ("mcp.json", '{"servers": [{}]}', "an object with a name"),
        ("mcp.json", '{"servers": ["git"]}', "an object with a name"),
        ("mcp.json", '{"mcpServers": {"git": "x"}}', "the server 'git' must be an object"),
    ],
)
def test_a_wrong_file_is_named(name: str, text: str, problem: str, home: Path) -> None:
    """The error has the whole path."""
    path = write(Path.cwd() / ".nexus3" / name, text)
    with pytest.raises(PromptError) as refused:
        ContextLoader().load()

    assert refused.value.detail.startswith(f"{path.resolve()}: ")
    assert problem in refused.value.detail


@pytest.mark.parametrize("name", ["NEXUS.md", ".nexus3/NEXUS.md", ".nexus3/config.json"])
def test_links_out_of_the_folder_are_refused(name: str, home: Path) -> None:
    """A link to the environment of the process would show its passwords to models."""
    path = write(Path.cwd() / name, "")
    path.unlink()
    path.symlink_to("/proc/self/environ")
    with pytest.raises(PromptError, match="a link leads out of"):
        ContextLoader().load()

    if name == "NEXUS.md":
        for load in (PromptLoader().load, ContextLoader().instructions):
            with pytest.raises(PromptError, match="a link leads out of"):
                load()
        with pytest.raises(PromptError, match="a link leads out of"):
            WatchedPrompts(PromptsSettings(project_folder=Path.cwd()))


def test_a_linked_folder_is_refused_out_of_the_project(home: Path) -> None:
    """The folder of a project's own files may be a link itself."""
    write(home / "elsewhere" / "NEXUS.md", "secret")
    Path(".nexus3").symlink_to(home / "elsewhere")
    with pytest.raises(PromptError, match="a link leads out of"):
        ContextLoader().load()


def test_links_within_the_folder_are_followed(home: Path) -> None:
    """So one file may have the names of several tools; Kubernetes mounts files so, too."""
    write(Path.cwd() / "..data" / "AGENTS.md", "be brief")
    Path("AGENTS.md").symlink_to("..data/AGENTS.md")
    Path("NEXUS.md").symlink_to("AGENTS.md")

    assert "be brief" in ContextLoader().load().system_prompt
    assert "be brief" in PromptLoader().load().content


def test_links_in_a_circle_are_refused(home: Path) -> None:
    """As the project, or as a file in it."""
    circle = home / "circle"
    circle.symlink_to(circle)
    Path("NEXUS.md").symlink_to("NEXUS.md")
    for loader in (ContextLoader(circle), ContextLoader()):
        with pytest.raises(PromptError, match=r"cannot be read"):
            loader.load()
