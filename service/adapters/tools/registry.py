"""The tools of this process."""

import json
from collections.abc import Mapping, Sequence

import structlog

from formatters.model import Tool
from service.wire.tools import check_definition

_log = structlog.get_logger(__name__)


class InMemoryToolRegistry:
    """The `ToolRegistry` that holds definitions as JSON, so that nobody's copy is another's."""

    def __init__(self) -> None:
        self._registered: dict[str, str] = {}
        #: What sources list, which change as a whole.
        self._listed: dict[str, Mapping[str, str]] = {}
        self._stale: set[str] = set()
        self._definitions: Mapping[str, str] = {}
        self._version = 0

    @property
    def version(self) -> int:
        """Return how often the definitions have changed."""
        return self._version

    @property
    def stale(self) -> Sequence[str]:
        """Return the sources whose tools may have changed, in the order of the sources."""
        return [source for source in tuple(self._listed) if source in self._stale]

    def register(self, definition: Tool) -> None:
        """Add a definition, or replace the one of its name, which keeps its place.

        Raises:
            ToolError: It is no OpenAI function definition.
        """
        check_definition(definition, "tool")
        text = json.dumps(definition)
        name = _name(definition)
        if name in self._registered:
            _log.warning("tool.replaced", tool=name)
        self._registered[name] = text
        self._join()

    def unregister(self, name: str) -> bool:
        """Remove a definition; returns whether there was one."""
        if self._registered.pop(name, None) is None:
            return False
        self._join()
        return True

    def replace(self, source: str, definitions: Sequence[Tool]) -> bool:
        """Put what a source lists now in the place of what it listed; returns whether that differs.

        Sources stand behind what is registered, in the order in which each was first named; of
        tools with one name the first stays. The definitions have been checked.
        """
        listed = {_name(definition): json.dumps(definition) for definition in definitions}
        before = self._listed.get(source, {})
        self._listed[source] = listed
        # the order counts too, for it is the one in which they are offered
        if list(listed.items()) == list(before.items()):
            return False
        self._join()
        return True

    def mark(self, source: str, *, stale: bool) -> None:
        """Note whether a source has failed to list its tools when it was last asked."""
        (self._stale.add if stale else self._stale.discard)(source)

    def get_tool_definition(self, name: str) -> Tool | None:
        """Return one definition, or None."""
        text = self._definitions.get(name)
        return None if text is None else _read(text)

    def get_all_tool_definitions(self) -> list[Tool]:
        """Return all definitions, in the order of their registration."""
        return [_read(text) for text in tuple(self._definitions.values())]  # read in threads too

    def list_tool_names(self) -> list[str]:
        """Return all names, in the order of their registration."""
        return list(self._definitions)

    def _join(self) -> None:
        joined = dict(self._registered)
        for source, listed in self._listed.items():
            for name, text in listed.items():
                if joined.setdefault(name, text) is not text:
                    _log.warning("tool.hidden", tool=name, source=source)
        self._definitions = joined
        self._version += 1  # last, so that nobody takes the old tools for the new version's


def _name(definition: Tool) -> str:
    function = definition["function"]
    return str(function["name"]) if isinstance(function, Mapping) else ""


def _read(text: str) -> Tool:
    definition: dict[str, object] = json.loads(text)
    return definition
