"""The configured system prompt, which is read again when one of its files changes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import structlog

from prompts.identity import CORE_IDENTITY
from prompts.layers import format_layers
from prompts.system_prompt import (
    SEPARATOR,
    ContextSection,
    EveryNTurns,
    InjectionTrigger,
    OnTokenThreshold,
    PersistentContext,
    SystemInjector,
    SystemPrompt,
)
from service.adapters.prompts.files import read_text
from service.adapters.prompts.folders import ContextLoader
from service.config.content import Injection, PromptSection, PromptsSettings
from service.errors import PromptError
from service.observe.metrics import UNMEASURED, Metrics

log = structlog.get_logger(__name__)

#: Changes with a file: device and inode, size, and the times of content and inode. None if there
#: is no file.
Stamp = tuple[int, ...] | None


class WatchedPrompts:
    """The configured `Prompts`. If the files can't be read, the previous texts stay in effect."""

    def __init__(self, settings: PromptsSettings, metrics: Metrics = UNMEASURED) -> None:
        """Read all files; raises `PromptError` if one is missing or can't be used."""
        self._settings = settings
        self._metrics = metrics
        self._injector = _injector(settings.injections)
        folder = settings.project_folder
        names = settings.instruction_files
        self._loader = ContextLoader(folder, instruction_files=names) if folder else None
        self._stamps = self._read_stamps()
        #: The texts in effect.
        self.current = self._read()
        self._last_error = ""

    async def refresh(self) -> None:
        """Read the files again if one has changed; logs each failure once."""
        try:
            changed = await asyncio.to_thread(self._reload)
        except PromptError as error:
            if error.detail != self._last_error:
                log.warning("prompts.unreadable", reason=error.detail)
            self._last_error = error.detail
            self._metrics.count_reload("failed")
            return
        self._last_error = ""
        if changed:
            self._metrics.count_reload("reloaded")
            log.info("prompts.reloaded", characters=len(self.current.text()))

    def _reload(self) -> bool:
        """Read changed files; returns whether the text has changed."""
        # stamps first: a change while the files are read is noticed the next time
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return False
        before, self.current = self.current, self._read()
        self._stamps = stamps
        return self.current.text() != before.text()

    def _read_stamps(self) -> dict[Path, Stamp]:
        return {path: _stamp(path) for path in self._paths()}

    def _paths(self) -> Iterator[Path]:
        if self._settings.identity_file:
            yield self._settings.identity_file
        if self._loader:
            yield from self._loader.instruction_paths()
        yield from (section.file for section in self._settings.sections if section.file)

    def _read(self) -> SystemPrompt:
        identity = self._settings.identity_file
        layers = format_layers(self._loader.instructions()) if self._loader else ""
        sections = PersistentContext(map(_section, self._settings.sections)).render()
        return SystemPrompt(
            identity=_require_text(identity) if identity else CORE_IDENTITY,
            sections=SEPARATOR.join(filter(None, (layers, sections))),
            injector=self._injector,
        )


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except (OSError, ValueError):  # reading it will raise the error
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _require_text(path: Path) -> str:
    """Return the text of a file that must exist and not be blank."""
    text = read_text(path)
    if text is None:
        raise PromptError(f"{path}: there is no such file")
    if not text.strip():
        raise PromptError(f"{path}: is blank")
    return text.strip()


def _section(section: PromptSection) -> ContextSection:
    text = _require_text(section.file) if section.file else section.text or ""
    return ContextSection(section.label, text, section.priority)


def _injector(injections: tuple[Injection, ...]) -> SystemInjector:
    injector = SystemInjector()
    for injection in injections:
        injector.add_rule(_trigger(injection), injection.text)
    return injector


def _trigger(injection: Injection) -> InjectionTrigger:
    if injection.every_n_turns is not None:
        return EveryNTurns(injection.every_n_turns)
    return OnTokenThreshold(injection.on_token_threshold or 0)
