"""The tools of this process."""

import json

import structlog

from formatters.model import Tool
from service.toolcheck import check_definition

_log = structlog.get_logger()


class InMemoryToolRegistry:
    """The `ToolRegistry` that holds definitions as JSON, so that nobody's copy is another's."""

    def __init__(self) -> None:
        self._definitions: dict[str, str] = {}
        self._version = 0

    @property
    def version(self) -> int:
        """Return how often a definition has come or gone."""
        return self._version

    def register(self, definition: Tool) -> None:
        """Add a definition, or replace the one of its name, which keeps its place.

        Raises:
            ToolError: It is no OpenAI function definition.
        """
        check_definition(definition, "tool")
        text = json.dumps(definition)
        name = json.loads(text)["function"]["name"]
        if name in self._definitions:
            _log.warning("tool.replaced", tool=name)
        self._definitions[name] = text
        self._version += 1  # last, so that nobody takes the old tools for the new version's

    def unregister(self, name: str) -> bool:
        """Remove a definition; returns whether there was one."""
        if self._definitions.pop(name, None) is None:
            return False
        self._version += 1
        return True

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


def _read(text: str) -> Tool:
    definition: dict[str, object] = json.loads(text)
    return definition
