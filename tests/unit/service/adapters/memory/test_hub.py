from service.adapters.memory.hub import Group, Lease, Stream, entry_of, token_of


def test_ids_grow_while_the_clock_does_not() -> None:
    """Entries of one millisecond, and of a clock set back, still have growing ids."""
    stream = Stream()

    assert [stream.add(at, {}) for at in (5, 5, 3, 6)] == [(5, 0), (5, 1), (5, 2), (6, 0)]


def test_tokens_are_written_as_in_redis() -> None:
    """An id reads and writes like one of Redis."""
    assert token_of((17, 2)) == "17-2"
    assert entry_of("17-2") == (17, 2)


def test_group_needs_its_oldest_pending_entry() -> None:
    """What a group still needs begins with what is pending, else behind what it has read."""
    group = Group(last=(5, 3))
    assert group.oldest_needed == (5, 4)

    group.pending[(5, 1)] = Lease("worker", 0)

    assert group.oldest_needed == (5, 1)


def test_trim_without_groups_keeps_all() -> None:
    """A stream that nobody has read yet keeps everything."""
    stream = Stream()
    stream.add(1, {})

    stream.trim()

    assert len(stream.ids) == len(stream.entries) == 1
