"""What a chat completion says, whatever a server sends; read without the SDK that asks for it."""

import json
import re
from typing import Final

from formatters.rows import well_formed
from service.errors import NoSummaryError, SummarizerError

#: All up to the last sentence that is whole.
_WHOLE: Final = re.compile(r".*(?:[.!?](?=\s|$)|[。！？]|\n)", re.DOTALL)


def read_answer(body: bytes) -> str:
    """Return the text of a chat completion; an unfinished last sentence is left out.

    Raises `SummarizerError` where there is none.
    """
    try:
        completion = json.loads(body)
    except (ValueError, RecursionError):
        raise SummarizerError("the model's answer is no JSON") from None
    match completion:
        case {"choices": [{"message": {"content": str(text)}, **choice}, *_]}:
            text = _without_thoughts(well_formed(text)).strip()
        case {"choices": [{"message": {}}, *_]}:
            raise SummarizerError("the model's answer has no text")
        case _:
            raise SummarizerError("the model's answer is no chat completion")
    if choice.get("finish_reason") == "content_filter":
        raise NoSummaryError("the model's answer was withheld by a filter")
    if choice.get("finish_reason") == "length" and (whole := _WHOLE.match(text)):
        text = whole[0].strip()
    if not text:
        raise SummarizerError("the model's answer has no text")
    return text


def _without_thoughts(text: str) -> str:
    """Return an answer without the thoughts that some servers leave before it."""
    thinks = text.lstrip().startswith("<think>")
    return text.partition("</think>")[2] if thinks else text
