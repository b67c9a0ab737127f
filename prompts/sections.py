"""Sections: named pieces of a prompt, from several places, in an order of their own."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

#: Stands between sections, and between the parts of a prompt.
GAP: Final = "\n\n"


@dataclass(frozen=True, slots=True)
class ContextSection:
    """A piece of a prompt under a heading of its own."""

    label: str
    content: str
    #: Lower goes first.
    priority: int = 0


class PersistentContext:
    """Sections that stand in every prompt, rendered as one text."""

    def __init__(self, sections: Iterable[ContextSection] = ()) -> None:
        self._sections = list(sections)

    def add_section(self, section: ContextSection) -> None:
        """Add a section; among those of one priority it comes last."""
        self._sections.append(section)

    def render(self) -> str:
        """Return all sections in their order, each under a heading; nothing where there are none.

        Labels and contents stay as they are.
        """
        ordered = sorted(self._sections, key=attrgetter("priority"))
        return GAP.join(f"## {section.label}\n{section.content}" for section in ordered)
