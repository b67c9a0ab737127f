from service.compaction.compactor import MAX_SKIPPED, add_failure, skips_build
from service.ports.stores import FailedScopes, Scope

OURS, OTHERS = Scope("o"), Scope("o", "c")


def attempts(failed: FailedScopes, builds: int) -> list[int]:
    """Return the builds that are attempted, where each attempt fails."""
    attempted = []
    for build in range(builds):
        if not skips_build(failed, OURS):
            add_failure(failed, OURS)
            attempted.append(build)
    return attempted


def test_a_history_is_tried_ever_less_often() -> None:
    """0, 1, 3, 7 builds pass, and never more than the most."""
    failed = FailedScopes(10)

    assert attempts(failed, 20) == [0, 1, 3, 7, 15]
    attempted = attempts(failed, 1_000)
    assert attempted[-1] - attempted[-2] == MAX_SKIPPED + 1


def test_other_histories_are_tried() -> None:
    """A failure says nothing of them."""
    failed = FailedScopes(10)
    attempts(failed, 9)

    assert skips_build(failed, OURS)
    assert not skips_build(failed, OTHERS)
