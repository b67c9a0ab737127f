"""The request that options make."""

import json
from pathlib import Path

import pytest
import typer

from service.cli.request import RequestOptions, make_request
from service.errors import InvalidRequestError
from service.wire.payload import MAX_BYTES


def test_options_make_a_request_in_the_short_form() -> None:
    """The request contains only what was given."""
    asked = RequestOptions(
        owner="ana", text="Hi", conversation="c", model="gpt-5", memory_limit=0, explain=True
    )
    assert make_request(asked) == {
        "owner_key": "ana",
        "conversation_id": "c",
        "content": {
            "current_input": "Hi",
            "context": {"model": "gpt-5", "memory_limit": 0, "explain": True},
        },
    }


def test_layout_and_format_are_options_of_the_context() -> None:
    """Under the names of the wire."""
    made = make_request(RequestOptions(owner="a", text="Hi", layout="chat", form="gemini"))
    assert made["content"]["context"] == {"layout": "chat", "format": "gemini"}


def test_profile_and_zone_have_their_places() -> None:
    """The profile is the text for [FRIENDS_INFO]; an offset of 0 is one."""
    content = make_request(RequestOptions(owner="a", text="", profile="p", timezone_offset=0))
    assert content["content"]["user_profile"] == {"prompt_overrides": {"friends_profile": "p"}}
    assert content["content"]["timezone_offset"] == 0


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"current_input": "Hi"}, ("context",)),
        ({"current_input": "Hi", "context": {"model": "m"}}, ("context",)),
        ({"context": {}}, ("context",)),
        ({"history": []}, ("metadata", "context")),
        ({"history": [], "current_input": None}, ("metadata", "context")),
        ({"history": [], "metadata": {"context": {"model": "m"}}}, ("metadata", "context")),
    ],
)
def test_options_go_over_those_of_a_file(
    content: dict[str, object], place: tuple[str, ...]
) -> None:
    """The same request can be tried with another budget, whichever form it has."""
    Path("r.json").write_text(json.dumps({"owner_key": "a", "content": content}))
    request = make_request(RequestOptions(request=Path("r.json"), max_tokens=9, owner="b"))
    options = request["content"]
    for key in place:
        options = options[key]
    assert options["max_tokens"] == 9
    assert request["owner_key"] == "b"


def test_a_file_with_a_large_request_is_read() -> None:
    """The bus has the limit, `bus.max_payload_bytes`, and a build here has none."""
    content = {"current_input": "x" * (MAX_BYTES + 1), "context": {}}
    Path("r.json").write_text(json.dumps({"content": content}))
    assert make_request(RequestOptions(request=Path("r.json"))) == {"content": content}


@pytest.mark.parametrize("content", [None, "text", {"history": [], "metadata": 3}])
def test_what_is_no_request_is_left_to_the_service(content: object) -> None:
    """A file of an odd form isn't mended here, so that the service names what is wrong."""
    Path("r.json").write_text(json.dumps({"content": content}))
    assert make_request(RequestOptions(request=Path("r.json"), max_tokens=9)) == {
        "content": content
    }


@pytest.mark.parametrize(
    "asked",
    [
        RequestOptions(owner="a"),
        RequestOptions(text="Hi"),
        RequestOptions(owner="a", text="Hi", request=Path("r.json")),
        RequestOptions(request=Path("missing.json")),
        RequestOptions(request=Path("r.json"), profile="p"),
        RequestOptions(owner="a", text="Hi", history=Path("missing.jsonl")),
    ],
)
def test_options_that_contradict_are_wrong_usage(asked: RequestOptions) -> None:
    """What can't be meant together, or names a missing file, is refused as usage."""
    with pytest.raises(typer.BadParameter):
        make_request(asked)


def test_the_body_of_a_call_is_json() -> None:
    """A format alone would change nothing of what is printed."""
    asked = RequestOptions(owner="a", text="Hi", form="anthropic")
    with pytest.raises(typer.BadParameter):
        make_request(asked, as_json=False)
    assert make_request(asked)["content"]["context"]["format"] == "anthropic"


def test_a_file_of_history_is_the_past() -> None:
    """The rows of a file go along in the request as they are, and bad lines stop it."""
    Path("h.jsonl").write_text('{"role": "HUMAN", "content": "Hi", "id": "1"}\n')
    options = RequestOptions(owner="a", text="Hi", history=Path("h.jsonl"))
    (row,) = make_request(options)["content"]["context"]["past"]
    assert row == {"role": "HUMAN", "content": "Hi", "id": "1"}
    Path("h.jsonl").write_text("{}\n")
    with pytest.raises(InvalidRequestError, match="line 1"):
        make_request(options)
