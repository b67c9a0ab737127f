"""Strangers' bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.rows import MAX_DEPTH
from service.errors import InvalidRequestError
from service.wire.payload import (
    canonical_json,
    canonical_json_fast,
    clean_json,
    digest,
    fingerprint,
    read_json,
    read_json_fast,
)
from service.wire.request import HEAD_BYTES, read_head

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


#: Numbers as JSON writes them, and as it doesn't: readers differ where they are long or large.
NUMBERS = st.sampled_from(
    [
        *("0", "-0", "-0.0", "1e5", "1E+5", "1e-5", "0.1e1", "1e22", "1e23", "9007199254740993.0"),
        *("1e400", "-1e400", "1e-400", "5e-324", "2.2250738585072011e-308", "NaN", "-Infinity"),
        *("9223372036854775807", "9223372036854775808", "-9223372036854775809"),
        *("18446744073709551615", "18446744073709551616", "999999999999999999", "1" + "0" * 400),
        *("1.00000000000000011102230246251565404", "01", "1.", ".5", "+1", "1e", "--1"),
    ]
) | st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)

#: Strings as JSON writes them, and as it doesn't.
STRINGS = st.text().map(json.dumps) | st.sampled_from(
    [
        '"\\ud83d\\ude00"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\\u0000"',
        '"\\/"',
        '"\\x"',
        '"\t"',
        "'a'",
    ]
)

#: Objects in JSON, some with keys twice, and what looks like them.
OBJECTS = st.recursive(
    NUMBERS | STRINGS | st.sampled_from(["null", "true", "false", "nul", "", " [ ] ", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(STRINGS, inner), max_size=3).map(
            lambda pairs: f"{{{','.join(f'{key}:{value}' for key, value in pairs)}}}"
        )
    ),
    max_leaves=8,
).map(lambda value: f'{{"a":{value},"a":{value}}}'.encode("utf-8", "surrogatepass"))


def _slowly(payload: bytes) -> object:
    return clean_json(read_json(payload))


@given(OBJECTS | st.binary() | JSON.map(lambda value: json.dumps({"a": value}).encode()))
def test_what_is_plain_is_read_alike(payload: bytes) -> None:
    """The fast way gives what the other gives, to the type of each number, or leaves it to it."""
    plain = read_json_fast(payload)
    if plain is not None:
        assert repr(plain) == repr(_slowly(payload))


@given(OBJECTS, st.integers(0, 200), st.binary(max_size=2))
def test_what_is_broken_is_read_alike(payload: bytes, place: int, put: bytes) -> None:
    """For any wrong byte, the fast way accepts nothing that the other refuses."""
    broken = payload[:place] + put + payload[place + 1 :]
    plain = read_json_fast(broken)
    if plain is not None:
        assert repr(plain) == repr(_slowly(broken))


@given(OBJECTS | st.floats(1e-12, 1e-3).map(lambda number: b'{"a":[%r,%r]}' % (number, -number)))
def test_what_is_plain_is_written_alike(payload: bytes) -> None:
    """The fast way to write what was read is the other, to the byte: fingerprints hang on it."""
    plain = read_json_fast(payload)
    if plain is not None:
        assert canonical_json_fast(plain) == canonical_json(plain)


def test_most_requests_are_plain() -> None:
    """Text in any language and numbers of a usual size are read the fast way."""
    value = {"id": "a", "n": 2**53, "x": 0.1, "said": ["Gruß 🙂", "\u2028"], "": None, "yes": True}
    for written in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert read_json_fast(written.encode()) == value


@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":18446744073709551616}',
        b'{"a":"1234567890123456789"}',
        b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
        b'{"a":"\\ud800"}',
        b'{"a":NaN}',
        b'{"a":1e400}',
        b'{"a":"\xff"}',
        b"[]",
    ],
)
def test_what_may_not_be_plain_is_left(payload: bytes) -> None:
    """Long numbers, deep nesting, lone surrogates and what is no object go the other way."""
    assert read_json_fast(payload) is None


def test_the_size_cap_holds_for_what_is_plain() -> None:
    """A message over the cap is left to the way that refuses it."""
    assert read_json_fast(b"{}", max_bytes=2) == {}
    assert read_json_fast(b"{ }", max_bytes=2) is None


@given(st.binary())
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    """Bytes give only an object or an `InvalidRequestError`."""
    try:
        assert isinstance(read_json(payload), dict)
    except InvalidRequestError as error:
        assert error.detail


@given(JSON)
def test_what_is_cleaned_can_be_encoded(value: object) -> None:
    """Cleaned values hold no lone surrogate and no number that JSON lacks."""
    try:
        json.dumps(clean_json(value), ensure_ascii=False, allow_nan=False).encode()
    except InvalidRequestError as error:
        assert "not a JSON number" in error.detail


@pytest.mark.parametrize(
    ("payload", "cause"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"[]", "must be a JSON object, not an array"),
        (b'"x"', "not a string"),
        (b"null", "not null"),
        (b"true", "not a boolean"),
        (b"1", "not a number"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a":' + b"1" * 5_000 + b"}", "too many digits; write it as a text"),
    ],
)
def test_what_is_no_object_is_refused_with_its_cause(payload: bytes, cause: str) -> None:
    """The refusal says what was found instead of an object."""
    with pytest.raises(InvalidRequestError, match=cause):
        read_json(payload)


def test_a_message_over_the_size_cap_is_refused_before_it_is_parsed() -> None:
    """The cap is on bytes, and names both sizes."""
    with pytest.raises(InvalidRequestError, match=r"11 bytes, 10 are allowed \(bus.max_pay"):
        read_json(b'{"a":"bcd"}', max_bytes=10)


def test_nesting_is_allowed_up_to_the_cap() -> None:
    """64 levels pass, one more does not."""
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert clean_json(value) == value

    with pytest.raises(InvalidRequestError, match="deeper than 64"):
        clean_json([value])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused_with_their_place(number: str) -> None:
    """NaN and infinities are refused, in whatever spelling."""
    with pytest.raises(InvalidRequestError) as caught:
        clean_json(read_json(f'{{"a/b": [{number}]}}'.encode()))

    assert caught.value.problems[0].pointer == "/a~1b/0"


def test_surrogates_are_joined_or_replaced() -> None:
    r"""A `\ud83d\ude00` pair is one character; half of one is U+FFFD, in keys too."""
    assert clean_json(read_json(rb'{"\ud83d": "\ud83d\ude00 \ude00"}')) == {"\ufffd": "😀 \ufffd"}


def test_a_fingerprint_speaks_of_what_is_requested_only() -> None:
    """Envelope time and metadata may differ in a retry; content, run and conversation may not."""
    request = {"content": {"b": 1, "a": [2]}, "run_id": "r", "timestamp": "x", "metadata": {}}
    retry = {"run_id": "r", "content": {"a": [2], "b": 1}, "timestamp": "y", "metadata": {"n": 1}}

    assert fingerprint(request) == fingerprint(retry)
    assert fingerprint(request) != fingerprint({**request, "conversation_id": "c"})
    assert fingerprint(request) != fingerprint({**request, "content": {"b": 1, "a": [3]}})


def test_a_digest_keeps_its_parts_apart() -> None:
    """Moving a character from one part to the next gives another digest."""
    assert digest("ab", "c") != digest("a", "bc")


def test_canonical_json_does_not_depend_on_the_order_of_keys() -> None:
    """Two mappings that say the same are one text."""
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})


FILLING = {"content": {"current_input": "\u00e9" * HEAD_BYTES}}
KNOWN = {"id": "m", "owner_key": "o", "metadata": {"reply_to": "r", "reply_kind": "list"}}


def head(value: object) -> object:
    """Return what is read of the head of a value's JSON."""
    return read_head(json.dumps(value, ensure_ascii=False).encode())


def test_the_head_of_a_large_message_has_the_keys_before_its_content() -> None:
    """But for the last one that is read, whose value may be cut: so may a reply address be."""
    assert head({**KNOWN, **FILLING}) == KNOWN
    assert head({**FILLING, **KNOWN}) == {"metadata": "not read"}
    cut = {"id": "m", "owner_key": "o", "metadata": {"reply_to": "r", "more": "x" * HEAD_BYTES}}
    assert head(cut) == {"id": "m", "owner_key": "o", "metadata": "not read"}
    assert head({**KNOWN, "content": {}}) == KNOWN


@pytest.mark.parametrize("payload", [b"", b"\xff{", b"[1]", b"7", b'{"a":' * HEAD_BYTES])
def test_other_heads_have_no_keys(payload: bytes) -> None:
    """Nothing is raised."""
    assert read_head(payload) == {}
