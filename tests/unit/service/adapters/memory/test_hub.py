from datetime import UTC, datetime

from service.adapters.memory.hub import Lease, Stream, written_at


def test_ids_grow_while_the_clock_does_not() -> None:
    """Entries of one millisecond, and of a clock set back, still have growing ids, as in Redis."""
    stream = Stream()

    assert [stream.add(at, {}) for at in (5, 5, 3, 6)] == ["5-0", "5-1", "5-2", "6-0"]


def test_entries_of_a_millisecond_keep_their_order() -> None:
    """The time of an entry is that in its id, and a microsecond more for each one before it."""
    assert written_at("1500-2") == datetime(1970, 1, 1, 0, 0, 1, 500_002, tzinfo=UTC)
    assert written_at("1500-5000") < written_at("1501-0")


def test_trim_keeps_what_any_group_needs() -> None:
    """From the first entry that a group has not read, or not acked, all stay."""
    stream = Stream()
    first, second, third = (stream.add(1, {}) for _ in range(3))
    one, two = stream.group("one"), stream.group("two")
    one.unread.clear()
    one.pending[second] = Lease("worker", 0)
    assert [two.unread.popleft(), two.unread.popleft()] == [first, second]

    stream.trim()

    assert list(stream.entries) == [second, third]


def test_a_group_reads_what_is_added_later() -> None:
    """A new group starts at the first entry, and every group gets the next ones."""
    stream = Stream()
    stream.add(1, {})
    stream.group("one")
    stream.add(1, {})

    assert list(stream.group("one").unread) == list(stream.group("two").unread) == ["1-0", "1-1"]


def test_trim_without_groups_keeps_all() -> None:
    """A stream that nobody has read yet keeps everything."""
    stream = Stream()
    stream.add(1, {})

    stream.trim()

    assert len(stream.entries) == 1
