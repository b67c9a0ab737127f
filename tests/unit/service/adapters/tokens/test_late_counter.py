"""Counters that are loaded when they are needed."""

from service.adapters.tokens.tokenizers import LateCounter
from service.budget.estimates import SimpleTokenCounter
from service.ports.services import TokenCounter


def test_it_is_loaded_by_the_first_question_and_once() -> None:
    """And says and counts what the loaded one does."""
    loaded: list[TokenCounter] = []

    def load() -> TokenCounter:
        loaded.append(SimpleTokenCounter())
        return loaded[-1]

    late = LateCounter(load)
    assert loaded == []
    assert (late.count("eight ch"), late.name, late.exact) == (2, "simple", False)
    assert len(loaded) == 1
