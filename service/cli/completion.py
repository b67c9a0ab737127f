"""What shells complete: names that are known without a bus, a store or a network."""


def strategies(incomplete: str) -> list[str]:
    """Return the names of the strategies that come with the service and begin so."""
    from service.budget.strategies import STRATEGIES

    return [name for name in STRATEGIES if name.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Return the models whose limits are known and whose names begin so."""
    from service.connect import open_models

    return sorted(name for name in open_models().models if name.startswith(incomplete))
