"""The start of every command: read the settings, set up logging, and check what it needs."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from service.cli.root import CommonOptions
from service.config.load import load_settings
from service.config.settings import Settings
from service.connect import check_ready, open_bus, require_shared_bus
from service.errors import ConfigError
from service.observe.logs import configure_logging
from service.ports.bus import Bus

T = TypeVar("T")


def start(
    common: CommonOptions,
    *,
    level: str = "warning",
    log_outdated: bool = True,
    **sections: Mapping[str, object],
) -> Settings:
    """Load the settings, overridden by options of the command line, and configure logging.

    Args:
        common: The options that precede the command.
        level: The log level unless the user has set one.
        log_outdated: Log outdated settings; False if the command prints them itself.
        sections: Settings from the command's own options, by section; None leaves one unset.

    Raises:
        ConfigError: The settings are invalid.
    """
    sections = {**sections, "log": {"level": common.log_level, "format": common.log_format}}
    given = {
        section: {name: value for name, value in values.items() if value is not None}
        for section, values in sections.items()
    }
    settings = load_settings(common.config, **given)
    configure_logging(
        settings.log.level if "log.level" in settings.origins else level,
        settings.log.format,
        content=settings.log.content,
        colors="NO_COLOR" not in os.environ,
    )
    if log_outdated:
        settings.log_warnings()
    return settings


def has_persistent_store(settings: Settings) -> bool:
    """Return whether the store outlives this process."""
    return not settings.store.url.get_secret_value().startswith("memory:")


def require_persistent_store(settings: Settings) -> Settings:
    """Return the settings; raises `ConfigError` if their store ends with this process."""
    if not has_persistent_store(settings):
        raise ConfigError(
            "the store is in memory and would end with this command; to use a file, set"
            " CTXB_STORE__URL=sqlite:///ctxb.db, or store.url in config.yml"
        )
    return settings


def require_existing_store(settings: Settings) -> Settings:
    """Return the settings; raises `StoreError` if opening their store would create or upgrade it.

    And `ConfigError` as above.
    """
    asyncio.run(check_ready(require_persistent_store(settings)))
    return settings


def run_on_bus(settings: Settings, action: Callable[[Bus], Awaitable[T]]) -> T:
    """Run an action on the shared bus; raises `BusError`, or `ConfigError` if there is none."""

    async def run() -> T:
        async with open_bus(require_shared_bus(settings)) as connected:
            return await action(connected.bus)

    return asyncio.run(run())
