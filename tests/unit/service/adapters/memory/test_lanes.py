"""The turns of owners whose entries wait in memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count, product

from hypothesis import given
from hypothesis import strategies as st

from service.adapters.memory.lanes import SHARE, Lanes


def entries(*owners: str, start: int = 0) -> dict[str, bytes]:
    """Return an entry for each of these owners, named after it and its place in the stream."""
    return {
        f"{owner}{number}": b'{"owner_key": "%s"}' % owner.encode()
        for number, owner in enumerate(owners, start)
    }


def lanes_of(payloads: Mapping[str, bytes]) -> Lanes:
    """Return lanes with these entries."""
    lanes = Lanes()
    lanes.add(payloads)
    return lanes


def test_owners_with_few_are_first() -> None:
    """In the order of the stream, whatever another owner has before them."""
    lanes = lanes_of(entries(*"f" * 100, "a", "b", "a"))

    assert list(lanes.take(4, heavy=999)) == ["a100", "b101", "a102", "f0"]


def test_owners_with_many_take_turns() -> None:
    """Also where one of them has far more."""
    lanes = lanes_of(entries(*"f" * 100, *"g" * 10))

    assert list(lanes.take(4, heavy=999)) == ["f0", "g100", "f1", "g101"]
    assert list(lanes.take(1, heavy=999)) == ["f2"]
    assert list(lanes.take(1, heavy=999)) == ["g102"]


def test_owners_with_many_leave_slots_free() -> None:
    """Which owners with few may take; each of their entries says how many are behind it."""
    lanes = lanes_of(entries(*"f" * 100, "a", "b"))

    assert lanes.take(4, heavy=1) == {"a100": None, "b101": None, "f0": 99}
    assert lanes.take(4, heavy=1) == {"f1": 98}
    assert lanes.take(4, heavy=-1) == {}


def test_owners_with_few_do_not_take_all_slots_for_ever() -> None:
    """Every eighth time, those of the others are first."""
    lanes = lanes_of(entries(*"f" * 100, *(f"o{number}" for number in range(20))))

    assert [next(iter(lanes.take(1, heavy=1)))[0] for _ in range(16)] == [*"ooooooof"] * 2


def test_an_entry_without_owner_waits_as_well() -> None:
    """They share a lane."""
    payloads = {str(number): b"no JSON" for number in range(2 * SHARE)}
    lanes = lanes_of({**payloads, **entries("a")})

    assert list(lanes.take(2, heavy=999)) == ["a0", "0"]


batches = st.lists(
    st.tuples(
        st.lists(st.sampled_from("fffffffffabc"), max_size=40),
        st.integers(0, 20),
        st.integers(0, 5),
    ),
    max_size=20,
)


@given(batches)
def test_lanes_lose_nothing_and_keep_each_owners_order(
    steps: Sequence[tuple[Sequence[str], int, int]],
) -> None:
    """Each entry is taken once, those of one owner and lane in their order, and never too many."""
    lanes = Lanes()
    added: list[str] = []
    taken: dict[str, int | None] = {}
    for owners, slots, heavy in steps:
        new = entries(*owners, start=len(added))
        lanes.add(new)
        added += new
        step = lanes.take(slots, heavy=heavy)
        assert len(step) <= slots
        assert taken.keys().isdisjoint(step)
        taken |= step
    assert len(lanes) == len(added) - len(taken)
    taken |= lanes.take(len(added), heavy=999)

    assert sorted(taken) == sorted(added)
    for owner, is_light in product("fabc", (True, False)):
        mine = [
            entry for entry in taken if entry[0] == owner and (taken[entry] is None) is is_light
        ]
        assert mine == sorted(mine, key=added.index)


@given(st.lists(st.sampled_from("ffffffabcdefgh"), max_size=200), st.integers(1, 20))
def test_no_owner_waits_while_another_has_more_than_its_turn(
    owners: Sequence[str], slots: int
) -> None:
    """Of those with many, none gets two entries more than another that still waits."""
    lanes = lanes_of(entries(*owners))
    total, turns = Counter(owners), Counter[str]()
    for call in count(1):
        step = lanes.take(slots, heavy=slots)
        if not step:
            break
        turns.update(entry[0] for entry in step)
        waiting = [owner for owner in total if turns[owner] < total[owner]]
        many = {owner for owner in total if total[owner] > SHARE}
        if call % 8 and not many.issuperset(waiting):
            assert many.isdisjoint(entry[0] for entry in step)
        taken = [turns[owner] for owner in many.intersection(waiting)]
        assert not taken or max(taken) - min(taken) <= 1
