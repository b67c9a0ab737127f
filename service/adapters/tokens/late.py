"""A counter that is loaded when it is needed."""

from collections.abc import Callable
from functools import cached_property

from service.ports import TokenCounter


class LateCounter:
    """Counts as another counter, which is loaded by the first question: many never come to one."""

    def __init__(self, load: Callable[[], TokenCounter]) -> None:
        self._load = load

    @cached_property
    def _counter(self) -> TokenCounter:
        return self._load()

    @property
    def name(self) -> str:
        """Return the name of what counts."""
        return self._counter.name

    @property
    def exact(self) -> bool:
        """Tell whether it counts exactly."""
        return self._counter.exact

    def count(self, text: str) -> int:
        """Return the number of tokens."""
        return self._counter.count(text)
