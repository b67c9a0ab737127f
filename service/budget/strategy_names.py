"""Read which strategy is asked for: a name, a name with parameters, or a list of these."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Final, TypeGuard

from service.budget.groups import Strategy
from service.budget.strategies import STRATEGIES
from service.budget.strategies.composite import Composite
from service.errors import shown
from service.wire.payload import escaped

#: What a strategy says of itself, and no caller sets.
_FIXED: Final = frozenset({"name", "reads_all"})

#: The strategy that is also written as a list.
COMPOSITE: Final = "composite"

#: No parameter is larger, or smaller below 0.
MOST: Final = 1_000_000_000

#: What may be set from outside: plain values, not tables of weights.
PLAIN: Final = (bool, int, float)


class UnknownStrategyError(ValueError):
    """There is no such strategy or parameter; ``place`` says which part is meant."""

    def __init__(self, place: str, detail: str) -> None:
        super().__init__(detail)
        #: The rest of a JSON pointer, below the strategy.
        self.place = place


def read_strategy(spec: object, known: Mapping[str, Strategy] = STRATEGIES) -> Strategy:
    """Return the strategy of a name, of ``{"name": …, parameters}``, or of a list of these.

    ``{"name": "composite", "strategies": […]}`` is that list.

    Raises:
        UnknownStrategyError: The name, a parameter or its value is wrong.
    """
    listed, place = spec, ""
    if isinstance(spec, Mapping) and spec.keys() == {"name", "strategies"}:
        listed, place = spec["strategies"] if spec["name"] == COMPOSITE else spec, "/strategies"
    return _several(listed, known, place) if _is_list(listed) else _read(spec, known, "")


def _is_list(spec: object) -> TypeGuard[Sequence[object]]:
    return isinstance(spec, Sequence) and not isinstance(spec, str)


def _several(specs: Sequence[object], known: Mapping[str, Strategy], place: str) -> Strategy:
    if not specs:
        raise UnknownStrategyError(place, "a list of strategies needs at least one")
    strategies = tuple(_read(each, known, f"{place}/{n}") for n, each in enumerate(specs))
    return Composite(strategies=strategies) if len(strategies) > 1 else strategies[0]


def _read(spec: object, known: Mapping[str, Strategy], place: str) -> Strategy:
    parameters = dict(spec) if isinstance(spec, Mapping) else {"name": spec}
    name = parameters.pop("name", None)
    strategy = known.get(name) if isinstance(name, str) else None
    if strategy is None:
        detail = f"{shown(name)} is no strategy; there are {', '.join(sorted(known))}"
        raise UnknownStrategyError(place, detail)
    return _with(strategy, parameters, place) if parameters else strategy


def _with(strategy: Strategy, parameters: Mapping[str, object], place: str) -> Strategy:
    settable = _settable(strategy)
    for name, value in parameters.items():
        if name not in settable:
            has = ", ".join(sorted(settable)) or "none"
            detail = f"{strategy.name} has no parameter {shown(name)}; it has {has}"
            raise UnknownStrategyError(f"{place}/{escaped(str(name))}", detail)
        if type(value) is not settable[name] and not (
            type(value) is int and settable[name] is float
        ):
            detail = f"{name} has to be of the type {settable[name].__name__}"
            raise UnknownStrategyError(f"{place}/{escaped(str(name))}", detail)
        if isinstance(value, int | float) and not abs(value) <= MOST:
            detail = f"{name} has to lie between -{MOST} and {MOST}"
            raise UnknownStrategyError(f"{place}/{escaped(str(name))}", detail)
    try:
        return replace(strategy, **parameters)  # type: ignore[type-var] # `_settable` has looked
    except ValueError as error:
        raise UnknownStrategyError(place, str(error)) from error


def _settable(strategy: Strategy) -> dict[str, type]:
    """Return the parameters of a strategy with the types of their defaults."""
    if not is_dataclass(strategy):
        return {}
    values = {field.name: getattr(strategy, field.name) for field in fields(strategy)}
    return {
        name: type(value)
        for name, value in values.items()
        if name not in _FIXED and type(value) in PLAIN
    }
