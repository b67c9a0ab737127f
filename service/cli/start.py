"""What a command does first: read the settings and start logging."""

import os
from collections.abc import Mapping

import structlog

from service.cli.options import Common
from service.config.load import load_settings
from service.config.settings import Settings
from service.errors import ConfigError
from service.observe.logs import configure_logging

log = structlog.get_logger()


def start(
    common: Common,
    *,
    level: str = "warning",
    log_outdated: bool = True,
    **sections: Mapping[str, object],
) -> Settings:
    """Return the settings, with what the command line says on top, and log as they say.

    ``level`` is logged from where nobody set one. Outdated settings are logged, unless the command
    shows them itself. Raises `ConfigError`.
    """
    sections = {**sections, "log": {"level": common.log_level, "format": common.log_format}}
    given = {name: _given(values) for name, values in sections.items()}
    settings = load_settings(
        common.config, **{name: values for name, values in given.items() if values}
    )
    chosen = "log.level" in settings.origins
    configure_logging(
        settings.log.level if chosen else level,
        settings.log.format,
        content=settings.log.content,
        colors="NO_COLOR" not in os.environ,
    )
    for warning in settings.warnings if log_outdated else ():
        log.warning("settings.outdated", warning=warning)
    return settings


def has_kept_store(settings: Settings) -> bool:
    """Tell whether the store outlives this process."""
    return not settings.store.url.get_secret_value().startswith("memory:")


def has_shared_bus(settings: Settings) -> bool:
    """Tell whether other processes reach the bus."""
    url = settings.bus.url
    return url is not None and not url.get_secret_value().startswith("memory:")


def kept_store(settings: Settings) -> Settings:
    """Return settings whose store outlives this process; raises `ConfigError` for others."""
    if not has_kept_store(settings):
        raise ConfigError(
            "the store is in memory and would end with this command; for a file, set"
            " CTXB_STORE__URL=sqlite:///ctxb.db, or store.url in config.yml"
        )
    return settings


def shared_bus(settings: Settings) -> Settings:
    """Return settings whose bus other processes reach; raises `ConfigError` for others."""
    if not has_shared_bus(settings):
        raise ConfigError(
            "no bus to reach a worker by; set CTXB_BUS__URL, or bus.url in config.yml"
            " (a worker with a bus of its own prints its URL)"
        )
    return settings


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}
