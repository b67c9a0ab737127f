"""Read a strategy from a request or setting: a name, a name with parameters, or a list of these."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from service.budget.groups import Strategy
from service.budget.strategies import STRATEGIES
from service.budget.strategies.composite import Composite
from service.errors import did_you_mean, escape_key, shown

#: Fields that describe a strategy and can't be set.
_FIXED: Final = frozenset({"name", "reads_all"})

#: The strategy that can also be written as a list.
COMPOSITE: Final = "composite"

MAX_VALUE: Final = 1_000_000_000

#: The types of parameters that can be set: plain values, not tables of weights.
PLAIN: Final = (bool, int, float)


class UnknownStrategyError(ValueError):
    """A strategy or parameter doesn't exist, or its value is wrong."""

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(detail)
        #: A JSON pointer to the wrong part, relative to the strategy.
        self.pointer = pointer


def read_strategy(spec: object, known: Mapping[str, Strategy] = STRATEGIES) -> Strategy:
    """Return the strategy of a name, of ``{"name": …, parameters}``, or of a list of these.

    ``{"name": "composite", "strategies": […]}`` is another way to write the list.

    Raises:
        UnknownStrategyError: The name, a parameter or its value is wrong.
    """
    specs, pointer = spec, ""
    if isinstance(spec, Mapping) and spec.get("name") == COMPOSITE and len(spec) == 2:
        specs, pointer = spec.get("strategies"), "/strategies"
    if not isinstance(specs, Sequence) or isinstance(specs, str):
        return _read_one(spec, known, "")
    if not specs:
        raise UnknownStrategyError(pointer, "a list of strategies needs at least one")
    strategies = tuple(
        _read_one(each, known, f"{pointer}/{index}") for index, each in enumerate(specs)
    )
    return Composite(strategies=strategies) if len(strategies) > 1 else strategies[0]


def _read_one(spec: object, known: Mapping[str, Strategy], pointer: str) -> Strategy:
    parameters = dict(spec) if isinstance(spec, Mapping) else {"name": spec}
    if "name" not in parameters:
        found = ", ".join(map(shown, parameters)) or "none"
        raise UnknownStrategyError(pointer, f"a strategy needs the key name; its keys are: {found}")
    name = parameters.pop("name")
    strategy = known.get(name) if isinstance(name, str) else None
    if strategy is None:
        detail = f"{shown(name)} is no strategy; there are {', '.join(sorted(known))}"
        meant = did_you_mean(name, known) if isinstance(name, str) else ""
        raise UnknownStrategyError(pointer, f"{detail}{meant}")
    if not parameters:
        return strategy
    for parameter, value in parameters.items():
        if problem := _problem(strategy, parameter, value):
            raise UnknownStrategyError(f"{pointer}/{escape_key(str(parameter))}", problem)
    try:
        return replace(strategy, **parameters)  # type: ignore[type-var] # `_problem` has looked
    except ValueError as error:
        raise UnknownStrategyError(pointer, str(error)) from error


def _problem(strategy: Strategy, name: str, value: object) -> str | None:
    """Return why a parameter can't have a value, or None if it can."""
    names = getattr(strategy, "__dataclass_fields__", {}).keys() - _FIXED
    types = {parameter: type(getattr(strategy, parameter)) for parameter in names}
    settable = {parameter: kind for parameter, kind in types.items() if kind in PLAIN}
    if name not in settable:
        listed = ", ".join(sorted(settable)) or "none"
        suggestion = did_you_mean(str(name), settable)
        return f"{strategy.name} has no parameter {shown(name)}; it has {listed}{suggestion}"
    is_whole_float = type(value) is int and settable[name] is float
    if type(value) is not settable[name] and not is_whole_float:
        kind = settable[name].__name__
        return f"{name} of {strategy.name} has to be of the type {kind}, not {shown(value)}"
    if isinstance(value, int | float) and not abs(value) <= MAX_VALUE:
        return f"{name} has to lie between -{MAX_VALUE} and {MAX_VALUE}, not be {shown(value)}"
    return None
