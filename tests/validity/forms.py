"""The validators of the forms in which a context can be requested."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.validity.anthropic import anthropic
from tests.validity.gemini import gemini
from tests.validity.openai_responses import openai_responses

#: Return what is wrong with a body; takes the provider parts that must be in it, by message.
Validate = Callable[[Mapping[str, object], Sequence[Sequence[object]]], list[str]]

#: A validator for each ``provider_request``; `tests.validity.canonical` is the fourth.
VALIDATORS: Final[Mapping[str, Validate]] = {
    "openai_responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
}
