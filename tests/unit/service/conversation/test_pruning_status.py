import json

import pytest

from service.conversation.pruning import get_status


@pytest.mark.parametrize(
    ("characters", "state", "percent", "message"),
    [
        (None, "idle", 0, "Healthy"),
        (400, "active", 0, "Healthy"),
        (200_000, "active", 50, "Healthy"),
        (360_000, "warning", 90, "Needs pruning"),
    ],
)
def test_the_state_is_that_of_the_window(
    characters: int | None, state: str, percent: int, message: str
) -> None:
    """Nothing said is idle, and more than 80 % of the window is a warning."""
    history = [] if characters is None else [{"role": "user", "content": "x" * characters}]
    status = get_status(history)

    assert (status["state"], status["utilization_percent"]) == (state, percent)
    assert status["message"] == message
    assert json.loads(json.dumps(status)) == status
