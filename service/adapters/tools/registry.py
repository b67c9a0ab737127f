"""The tool registry of a process."""

import json
from collections.abc import Mapping, Sequence

import structlog

from formatters.model import Tool
from service.wire.tool_definitions import check_definition, tool_name

_log = structlog.get_logger(__name__)


class InMemoryToolRegistry:
    """A `ToolRegistry` that stores definitions as JSON, so that callers never share a copy.

    Threads may read it while it changes.
    """

    def __init__(self) -> None:
        self._registered: dict[str, str] = {}
        #: The definitions of each source, which are replaced together.
        self._listed: dict[str, Mapping[str, str]] = {}
        self._definitions: Mapping[str, str] = {}
        #: The number of changes of the definitions.
        self.version = 0
        #: The sources that failed to list their tools, in the order of the sources.
        self.stale: Sequence[str] = []

    def register(self, definition: Tool) -> None:
        """Add a definition, which replaces a definition of the same name in its position.

        Raises:
            ToolError: It is not an OpenAI function definition.
        """
        check_definition(definition, "tool")
        text = json.dumps(definition)
        name = tool_name(definition)
        if name in self._registered:
            _log.warning("tool.replaced", tool=name)
        self._registered[name] = text
        self._join()

    def unregister(self, name: str) -> bool:
        """Remove a definition; returns whether it existed."""
        if self._registered.pop(name, None) is None:
            return False
        self._join()
        return True

    def replace(self, source: str, definitions: Sequence[Tool]) -> bool:
        """Replace the definitions of a source with valid ones; returns whether they differ.

        Sources follow the registered tools, in the order in which they were first added. Of tools
        with the same name the first one counts.
        """
        listed = {tool_name(definition): json.dumps(definition) for definition in definitions}
        previous = self._listed.get(source, {})
        self._listed[source] = listed
        # the order matters too: tools are offered in it
        if list(listed.items()) == list(previous.items()):
            return False
        self._join()
        return True

    def mark(self, source: str, *, stale: bool) -> None:
        """Record whether a source failed to list its tools the last time."""
        marked = {*self.stale, source} if stale else {*self.stale} - {source}
        self.stale = [name for name in self._listed if name in marked]

    def get_tool_definition(self, name: str) -> Tool | None:
        """Return a definition, or None."""
        text = self._definitions.get(name)
        return None if text is None else _parse(text)

    def get_all_tool_definitions(self) -> list[Tool]:
        """Return all definitions, in the order of their registration."""
        return [_parse(text) for text in tuple(self._definitions.values())]

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
        self.version += 1  # last: a reader of the new version must not get the old tools


def _parse(text: str) -> Tool:
    definition: dict[str, object] = json.loads(text)
    return definition
