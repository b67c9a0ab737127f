from service.adapters.bus_options import BusOptions, bus_options
from service.config.settings import Settings


def test_consumers_differ() -> None:
    """No two buses share a name in the group, not even within a process."""
    assert BusOptions().consumer != BusOptions().consumer


def test_settings_reach_the_bus() -> None:
    """The defaults are those of the settings; what is set replaces them."""
    settings = Settings.model_validate({"bus": {"lease_seconds": 7}, "worker": {"consumer": "one"}})

    assert bus_options(settings) == BusOptions(lease_seconds=7, consumer="one")
