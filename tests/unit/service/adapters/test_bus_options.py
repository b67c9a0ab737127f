from service.adapters.bus_options import BusOptions


def test_consumers_differ() -> None:
    """No two buses share a name in the group, not even within a process."""
    assert BusOptions().consumer != BusOptions().consumer
