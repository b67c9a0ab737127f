"""PromptManager: what the system says of itself, as text."""

from collections.abc import Sequence

from formatters.model import Facts, Tool
from prompts.capabilities import capabilities
from prompts.identity import CORE_IDENTITY


class PromptManager:
    """The prompts as text, for callers who have no use for blocks."""

    def get_core_identity(self) -> str:
        """Return CORE_IDENTITY, the same for everybody."""
        return CORE_IDENTITY

    def get_capabilities_prompt(self, tools: Sequence[Tool]) -> str:
        """Return the `[CAPABILITIES]` block for OpenAI function definitions, in their order."""
        return capabilities(Facts(current_input="", tools=tuple(tools))).text
