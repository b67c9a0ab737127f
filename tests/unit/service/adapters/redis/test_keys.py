import hashlib

from redis.crc import key_slot

from service.adapters.redis.keys import (
    Shard,
    report_key,
    report_pattern,
    result_key,
    result_pattern,
)
from service.ports.bus import Identity


def test_result_key_is_the_documented_one() -> None:
    """The key is what the wire contract says, so that any language can compute it."""
    digest = hashlib.sha256("5:0xÄBm1".encode()).hexdigest()

    key = result_key(Identity("0xÄB", "m1"))

    assert key == f"context.build.result.{{context.build.request}}.{digest}"


def test_owner_and_id_do_not_run_together() -> None:
    """Two identities whose texts join to the same are two."""
    assert result_key(Identity("ab", "c")) != result_key(Identity("a", "bc"))


def test_prefix_stands_before_everything() -> None:
    """Two deployments on one server share no key."""
    keys = Shard("prod.")

    assert keys.stream == "prod.context.build.request"
    assert keys.result(Identity("a", "b")).startswith(
        "prod.context.build.result.{prod.context.build.request}."
    )
    assert keys.heard(b"1").startswith("prod.context.build.heard.{prod.context.build.request}.")


def test_copies_of_a_payload_have_one_key() -> None:
    """Whoever hears the same bytes looks at the same set."""
    assert Shard("").heard(b"1") == Shard("").heard(b"1")
    assert Shard("").heard(b"1") != Shard("").heard(b"2")


def test_keys_of_a_shard_share_its_slot() -> None:
    """What one step works on lies on one node of a cluster, whatever the prefix."""
    for prefix in ("", "prod.", "{prod}."):
        for topic in ("context.build.request", "context.build.request.{3}"):
            keys = Shard(prefix, topic)
            names = [keys.stream, keys.heard(b"1"), keys.result(Identity("a", "b"))]
            assert len({key_slot(name.encode()) for name in names}) == 1


def test_result_key_of_a_shard_is_the_documented_one() -> None:
    """The number of the shard stands between the braces."""
    key = result_key(Identity("a", "b"), "prod.", "context.build.request.{2}")

    assert key.startswith("prod.context.build.result.{2}.")


def test_patterns_are_of_the_keys_under_a_prefix() -> None:
    """What a glob takes for more than itself is escaped in a prefix."""
    assert result_pattern() == "context.build.result.*"
    assert report_pattern("prod.") == "prod.context.build.report.*"
    assert result_pattern("[a]?*\\{x}-") == r"\[a\]\?\*\\{x}-context.build.result.*"
    assert report_key("bld_1").startswith(report_pattern()[:-1])
    assert result_key(Identity("o", "a")).startswith(result_pattern()[:-1])
