"""What the operator has a model told: the identity, sections behind it, and reminders."""

from dataclasses import dataclass, field

from prompts.identity import CORE_IDENTITY
from prompts.injector import SystemInjector
from prompts.sections import GAP


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPrompt:
    """The operator's texts, as they were last read."""

    identity: str = CORE_IDENTITY
    #: What stands behind the identity; empty for nothing.
    sections: str = ""
    injector: SystemInjector = field(default_factory=SystemInjector)

    def text(self, own: str | None = None) -> str:
        """Return the system message; ``own`` takes the identity's place, sections stay."""
        return GAP.join(filter(None, (own or self.identity, self.sections)))
