"""The system message as the operator and a request want it."""

from prompts.identity import CORE_IDENTITY
from prompts.system_prompt import SystemPrompt


def test_the_shipped_identity_is_the_default() -> None:
    """Nothing is added to it."""
    assert SystemPrompt().text() == CORE_IDENTITY


def test_sections_stand_behind_the_identity() -> None:
    """Behind a request's own as well."""
    prompt = SystemPrompt(identity="I", sections="## Rules\nBe kind.")

    assert prompt.text() == "I\n\n## Rules\nBe kind."
    assert prompt.text("Mine") == "Mine\n\n## Rules\nBe kind."
