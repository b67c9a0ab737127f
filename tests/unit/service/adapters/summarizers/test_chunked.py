import asyncio

import pytest

from formatters.model import Message, Role
from service.adapters.summarizers.chunked import (
    MIN_SHARE,
    ChunkedSummarizer,
    cut_to_sentences,
    split_tokens,
)
from service.config.content import SummarizerSettings
from service.errors import SummarizerError


class Model:
    """Answers prompts, and remembers them."""

    def __init__(self, *, fails_at: int = 0, answer: str | None = None) -> None:
        self.prompts: list[str] = []
        self.shares: list[int] = []
        self.busy = 0
        self.most_busy = 0
        self._fails_at = fails_at
        self._answer = answer

    async def ask(self, prompt: str, max_tokens: int) -> str:
        """Answer with the number of the prompt, or fail."""
        self.prompts.append(prompt)
        self.shares.append(max_tokens)
        number = len(self.prompts)
        self.busy += 1
        self.most_busy = max(self.busy, self.most_busy)
        for _ in range(5):
            await asyncio.sleep(0)
        self.busy -= 1
        if number == self._fails_at:
            raise SummarizerError("down")
        return self._answer if self._answer is not None else f" Part {number}. \n"


def talk(*texts: str) -> list[Message]:
    """Return human messages."""
    return [Message(id=f"m{n}", role=Role.HUMAN, content=text) for n, text in enumerate(texts)]


def summarizer(model: Model, **settings: object) -> ChunkedSummarizer:
    """Return a summarizer that counts characters."""
    given = SummarizerSettings.model_validate({"chunk_tokens": 256, **settings})
    return ChunkedSummarizer("a-model", model.ask, len, given)


async def test_each_chunk_is_summarised_by_itself() -> None:
    """Every message is in one prompt, and the parts are joined in their order."""
    model = Model()
    texts = [f"{n:03} " * 40 for n in range(4)]

    summary = await summarizer(model).summarize(talk(*texts), max_tokens=400)

    assert summary == "Part 1.\n\nPart 2.\n\nPart 3.\n\nPart 4."
    assert [text.strip() in prompt for text, prompt in zip(texts, model.prompts, strict=True)] == (
        [True] * 4
    )
    assert not any("Part" in prompt for prompt in model.prompts)
    assert sum(model.shares) <= 400


async def test_a_message_larger_than_a_chunk_is_read_whole() -> None:
    """In several prompts, of which each is bounded."""
    model = Model()
    words = [f"w{n:04}" for n in range(200)]

    await summarizer(model).summarize(talk(" ".join(words)), max_tokens=1_000)

    said = [prompt.partition("CONVERSATION:")[2] for prompt in model.prompts]
    assert len(said) > 4
    assert all(any(word in part for part in said) for word in words)
    assert all(len(part.partition("SUMMARY:")[0]) <= 260 for part in said)


async def test_too_many_chunks_are_summarised_twice() -> None:
    """A history that grows for years still has a summary; each message is read first."""
    model = Model()
    texts = [f"{n:03} " * 40 for n in range(30)]

    summary = await summarizer(model).summarize(talk(*texts), max_tokens=60)

    assert summary == f"Part {len(model.prompts)}."
    assert 30 < len(model.prompts) < 50
    assert all(text.strip() in prompt for text, prompt in zip(texts, model.prompts, strict=False))
    assert "OTHER: Part 30." in str(model.prompts)
    assert model.shares[-1] <= 60


async def test_a_model_that_fills_its_tokens_comes_to_an_end() -> None:
    """However many chunks there are, and however small."""

    async def ask(prompt: str, max_tokens: int) -> str:
        return "x" * (max_tokens - 1) + "."

    given = SummarizerSettings(chunk_tokens=256)
    chunked = ChunkedSummarizer("a-model", ask, len, given)
    assert len(await chunked.summarize(talk(*["y" * 200] * 50), max_tokens=60)) <= 60


async def test_no_more_are_requested_at_once_than_set() -> None:
    """The model's server has other things to do as well."""
    model = Model()
    texts = ["x" * 200] * 6
    await summarizer(model, concurrency=2).summarize(talk(*texts), max_tokens=1_000)
    assert (len(model.prompts), model.most_busy) == (6, 2)


async def test_one_failure_fails_all() -> None:
    """A summary with a hole in it would be none."""
    model = Model(fails_at=2)
    with pytest.raises(SummarizerError, match="down"):
        await summarizer(model).summarize(talk(*["x" * 200] * 4), max_tokens=1_000)


@pytest.mark.parametrize(("redact", "sent"), [(True, False), (False, True)])
async def test_secrets_are_redacted_by_default(redact: bool, sent: bool) -> None:
    """Unless the settings say otherwise."""
    model = Model()
    secret = "password=swordfish"
    await summarizer(model, redact=redact).summarize(talk(secret), max_tokens=100)
    assert (secret in model.prompts[0]) is sent


async def test_an_answer_that_grows_is_refused() -> None:
    """What is far longer than it may be is not what was requested."""
    model = Model(answer="So be it. " * 100)
    with pytest.raises(SummarizerError, match="tokens instead of"):
        await summarizer(model).summarize(talk("x" * 200), max_tokens=100)


@pytest.mark.parametrize(
    ("most", "sizes", "shares"),
    [
        (100, [7], [98]),
        (84, [5, 500], [MIN_SHARE, MIN_SHARE]),
        (184, [100, 300], [MIN_SHARE + 25, MIN_SHARE + 75]),
    ],
)
def test_larger_chunks_get_longer_summaries(most: int, sizes: list[int], shares: list[int]) -> None:
    """Each has the least that says something, and what is left goes by size."""
    assert split_tokens(most, sizes) == shares


@pytest.mark.parametrize(
    ("most", "sizes", "problem"),
    [
        (100, [], "nothing to summarise"),
        (41, [1], "at least 42 tokens, not 41"),
        (83, [1, 1], "at least 84 tokens, not 83"),
    ],
)
def test_what_cannot_be_reported_is_an_error(most: int, sizes: list[int], problem: str) -> None:
    """No chunk is left out to make room."""
    with pytest.raises(SummarizerError, match=problem):
        split_tokens(most, sizes)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One two. Three.", "One two. Three."),
        ("One two three. Four five. Six.", "One two three."),
        ("- one two three\n- four five six", "- one two three"),
        ("一二三四五六七八九十一二。四五六七八。", "一二三四五六七八九十一二。"),
    ],
)
def test_an_answer_a_little_too_long_is_cut(text: str, kept: str) -> None:
    """After a whole sentence or line: models count by other tokenizers."""
    assert (
        cut_to_sentences(text, 21 if text[0] == "-" else 17 if text[0] == "一" else 20, len) == kept
    )


def test_an_answer_of_one_sentence_is_not_cut() -> None:
    """Half a sentence is worse than none."""
    with pytest.raises(SummarizerError):
        cut_to_sentences("one two three four five", 20, len)
