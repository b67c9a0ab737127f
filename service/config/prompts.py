"""The settings of what the operator has a model told."""

from pathlib import Path
from typing import Self

from pydantic import model_validator

from service.config.section import Count, Seconds, Section, Text


class PromptSection(Section):
    """A section of the system message, behind the identity."""

    #: Its heading.
    label: Text
    #: What it says; either this or a file.
    text: Text | None = None
    #: The file that says it.
    file: Path | None = None
    #: Lower goes first.
    priority: int = 0

    @model_validator(mode="after")
    def _say_one_thing(self) -> Self:
        if (self.text is None) == (self.file is None):
            raise ValueError("needs either text or file")
        return self


class Injection(Section):
    """A reminder in [THIS_MOMENT], and when it is due."""

    #: What it says.
    text: Text
    #: In each turn that is a multiple of it.
    every_n_turns: Count | None = None
    #: In every turn from so many tokens of history on.
    on_token_threshold: Count | None = None

    @model_validator(mode="after")
    def _have_one_trigger(self) -> Self:
        if (self.every_n_turns is None) == (self.on_token_threshold is None):
            raise ValueError("needs either every_n_turns or on_token_threshold")
        return self


class PromptsSettings(Section):
    """What models are told by the operator."""

    #: In place of the identity that is shipped.
    identity_file: Path | None = None
    #: Whether a request may bring an identity of its own.
    allow_request_identity: bool = False
    #: Whose instruction files stand behind the identity, with those of the folders above it.
    project_folder: Path | None = None
    #: Of several in one folder, the first counts.
    instruction_files: tuple[Text, ...] = ("NEXUS.md", "AGENTS.md", "CLAUDE.md", "README.md")
    sections: tuple[PromptSection, ...] = ()
    injections: tuple[Injection, ...] = ()
    #: Between two looks at the files.
    reload_seconds: Seconds = 5.0
