"""The configured system prompt; its files are read every few seconds."""

import asyncio
from pathlib import Path

import structlog

from prompts.identity import CORE_IDENTITY, PLAIN, WITHOUT_CAPABILITIES
from prompts.layers import format_layers
from prompts.system_prompt import (
    SEPARATOR,
    ContextSection,
    EveryNTurns,
    OnTokenThreshold,
    PersistentContext,
    SystemInjector,
    SystemPrompt,
)
from service.adapters.files import read_text
from service.adapters.prompts.folders import ContextLoader
from service.config.content import PromptsSettings
from service.errors import PromptError
from service.observe.metrics import UNMEASURED, Metrics

log = structlog.get_logger(__name__)


class WatchedPrompts:
    """The configured `Prompts`. If the files can't be read, the previous texts stay in effect."""

    def __init__(self, settings: PromptsSettings, metrics: Metrics = UNMEASURED) -> None:
        """Read all files; raises `PromptError` if one is missing or can't be used."""
        self._settings = settings
        self._metrics = metrics
        self._injector = SystemInjector()
        for injection in settings.injections:
            turns, tokens = injection.every_n_turns, injection.on_token_threshold
            trigger = OnTokenThreshold(tokens or 0) if turns is None else EveryNTurns(turns)
            self._injector.add_rule(trigger, injection.text)
        folder = settings.project_folder
        names = settings.instruction_files
        self._loader = ContextLoader(folder, instruction_files=names) if folder else None
        #: The texts in effect.
        self.current = self._read()
        self._last_error = ""

    async def refresh(self) -> None:
        """Read the files again; logs each failure once."""
        try:
            read = await asyncio.to_thread(self._read)
        except PromptError as error:
            if error.detail != self._last_error:
                log.warning("prompts.unreadable", reason=error.detail)
            self._last_error = error.detail
            self._metrics.count("config_reloads", "failed")
            return
        self._last_error = ""
        if read.text() != self.current.text():
            self.current = read
            self._metrics.count("config_reloads", "reloaded")
            log.info("prompts.reloaded", characters=len(self.current.text()))

    def _read(self) -> SystemPrompt:
        identity = self._settings.identity_file
        layers = format_layers(self._loader.instructions()) if self._loader else ""
        sections = PersistentContext(
            ContextSection(
                section.label,
                _require_text(section.file, "prompts.sections")
                if section.file
                else section.text or "",
                section.priority,
            )
            for section in self._settings.sections
        ).render()
        return SystemPrompt(
            identity=_require_text(identity, "prompts.identity_file")
            if identity
            else _shipped_identity(self._settings),
            sections=SEPARATOR.join(filter(None, (layers, sections))),
            injector=self._injector,
        )


def _shipped_identity(settings: PromptsSettings) -> str:
    without_tools = settings.capabilities == "none"
    nexus = WITHOUT_CAPABILITIES if without_tools else CORE_IDENTITY
    return {"nexus": nexus, "plain": PLAIN, "none": ""}[settings.identity]


def _require_text(path: Path, setting: str) -> str:
    """Return the text of a setting's file, which must exist and not be blank."""
    text = read_text(path)
    if text is None:
        raise PromptError(f"{setting}: {path}: there is no such file")
    if not text.strip():
        raise PromptError(f"{setting}: {path}: is blank")
    return text.strip()
