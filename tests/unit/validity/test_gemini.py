from typing import Any

import pytest

from tests.validity.gemini import gemini


def call(id_: str | None = "c", **more: Any) -> dict[str, Any]:
    """Return a part that calls a function."""
    return {"functionCall": {"id": id_, "name": "find", "args": {}, **more}}


def response(id_: str | None = "c", **more: Any) -> dict[str, Any]:
    """Return a part that answers a call."""
    return {"functionResponse": {"id": id_, "name": "find", "response": {"output": ""}, **more}}


TEXT = {"text": "hi"}
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "aaaa"}}


def user(*parts: Any) -> dict[str, Any]:
    """Return a user's content."""
    return {"role": "user", "parts": list(parts)}


def model(*parts: Any) -> dict[str, Any]:
    """Return a model's content."""
    return {"role": "model", "parts": list(parts)}


def body(*contents: Any, **more: Any) -> dict[str, Any]:
    """Return a body."""
    return {"contents": list(contents), **more}


def declared(*functions: Any) -> dict[str, Any]:
    """Return the field that declares functions."""
    return {"tools": [{"functionDeclarations": list(functions)}]}


def test_a_valid_body() -> None:
    """Both casings, calls without ids and a signature without a text are fine."""
    snake = {"function_call": {"name": "find"}, "thought_signature": "s", "text": None}
    spoken = model(TEXT, {"text": "", "thoughtSignature": "s"}, call(), snake)
    whole = body(
        user(TEXT, PICTURE),
        spoken,
        user(response(None), response()),
        user(TEXT),
        systemInstruction={"parts": [TEXT]},
        **declared({"name": "find", "parametersJsonSchema": {"type": "object"}}, {"name": "a.b"}),
    )

    assert gemini(whole, [[TEXT], [snake]]) == []


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ([], "contents: there are none"),
        ([model(TEXT), user(TEXT)], "contents[0]: the first content is not a user's"),
        ([user(TEXT), model(TEXT)], "contents[1]: the last content is not a user's"),
        (
            [{"role": "tool", "parts": [TEXT]}, user(TEXT)],
            "contents[0]: the role 'tool' is not known",
        ),
        ([user(TEXT), user(TEXT)], "contents[1]: follows a content of the same role"),
        (
            [user(TEXT), model(TEXT), model(call()), user(response())],
            "contents[2]: follows a content of the same role",
        ),
        (
            [user(TEXT), model(TEXT), model(response()), user(TEXT)],
            "contents[2]: follows a content of the same role",
        ),
        ([user()], "contents[0]: has no parts"),
        ([user({})], "contents[0].parts[0]: holds 0 things, not one"),
        ([user({**TEXT, **PICTURE})], "contents[0].parts[0]: holds 2 things, not one"),
        ([user({"text": ""})], "contents[0].parts[0]: the text is empty"),
        ([user(call())], "contents[0].parts[0]: only the model may call a function"),
        (
            [user(TEXT), model(call(name="9")), user(response(name="9"))],
            "contents[1].parts[0]: the name '9' is not of the allowed form",
        ),
        (
            [user(TEXT), model(call(args="{}")), user(response())],
            "contents[1].parts[0]: the args are no object",
        ),
        (
            [user(TEXT), model(call()), model(response()), user(TEXT)],
            "contents[2].parts[0]: only the user may answer a call",
        ),
        (
            [user(TEXT), model(call()), user(response(response="found"))],
            "contents[2].parts[0]: the response is no object",
        ),
        (
            [user(TEXT), model(call()), user(response(), TEXT)],
            "contents[2]: has responses beside something else",
        ),
        (
            [user(TEXT), model(call(), call()), user(response(), response())],
            "contents[1].parts[1]: the id 'c' was used before, at contents[1].parts[0]",
        ),
        (
            [user(TEXT), model(call()), user(TEXT)],
            "contents[1]: the call 'c' of 'find' is not answered next",
        ),
        (
            [user(TEXT), model(call()), user(response(name="other"))],
            "contents[2].parts[0]: answers no call of the content before it",
        ),
    ],
)
def test_faults_of_contents(contents: list[Any], problem: str) -> None:
    """Each is named with its place."""
    assert problem in gemini(body(*contents))


def test_responses_are_distinguished_from_what_a_user_says() -> None:
    """By any of the parts: the content that follows is none of theirs."""
    contents = [user(TEXT), model(call()), user(response(), TEXT), user(TEXT)]

    assert gemini(body(*contents)) == ["contents[2]: has responses beside something else"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"model": "gemini"}, "model: is no field of this form"),
        ({"systemInstruction": {}}, "systemInstruction: is no text that says something"),
        (
            {"systemInstruction": {"parts": [{"text": " "}]}},
            "systemInstruction: is no text that says something",
        ),
        (
            {"systemInstruction": {"parts": [TEXT, {"text": ""}]}},
            "systemInstruction: is no text that says something",
        ),
        ({"tools": []}, "tools: there are none"),
        (
            declared({"name": "a b"}),
            "tools[0].functionDeclarations[0]: the name 'a b' is not of the allowed form",
        ),
        (
            declared({"name": "f", "parameters": {}, "parametersJsonSchema": {"type": "object"}}),
            "tools[0].functionDeclarations[0]: has parameters in two forms",
        ),
        (
            declared({"name": "f", "parametersJsonSchema": {}}),
            "tools[0].functionDeclarations[0].parametersJsonSchema: is no JSON schema of an object",
        ),
        (
            declared({"name": "f"}, {"name": "f"}),
            "tools[0].functionDeclarations[1]: the name 'f' was used before,"
            " at tools[0].functionDeclarations[0]",
        ),
    ],
)
def test_faults_of_other_fields(fields: dict[str, Any], problem: str) -> None:
    """Each is named with its place."""
    assert gemini(body(user(TEXT), **fields)) == [problem]
