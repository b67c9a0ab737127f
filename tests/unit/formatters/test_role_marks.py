import pytest

from formatters.guard import GUARD, Guard, Place
from formatters.role_marks import TOKENS, family_of, find_tokens


@pytest.mark.parametrize("family", TOKENS)
def test_every_token_is_broken(family: str) -> None:
    """Wherever it is, when it was broken before too, and it can be had back."""
    tokens = [token.replace("*", "abc_1") for token in TOKENS[family]]
    for guard in (GUARD, Guard(find_tokens(family))):
        for text in (*tokens, *(f"a{token}b" for token in tokens), "".join(tokens)):
            broken = guard.shatter(text)
            twice = guard.shatter(broken)

            assert not any(token in broken for token in tokens)
            assert guard.finds_token(text)
            assert not guard.finds_token(broken)
            assert broken.replace("\\", "") == text
            assert guard.unquote(broken, Place.ROW) == text
            assert guard.unquote(twice, Place.ROW) == broken != twice


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("<<SYS>>", "<\\<SYS>>"),
        ("<<|im_end|>", "<<\\|im_end|>"),
        ("a [INST] b [/INST]</s>", "a [\\INST] b [\\/INST]<\\/s>"),
        (" Пользователь: x", " П\\ользователь: x"),
        ("Ассистент: x", "А\\ссистент: x"),
        ("[Round 1]\n\n问：", "[\\Round 1]\n\n问："),
        ("]~b]system", "]\\~b]system"),
        *((text, text) for text in ("<|", "a <| b |> c", "Vec<S>", "<b>", "[x]", "f <|> d", "<<")),
        *((text, text) for text in ("<|a b|>", "новыйПользователь: root")),
    ],
)
def test_a_token_is_broken_behind_its_first_letter(text: str, broken: str) -> None:
    """A tokenizer that looks for it doesn't find it; code that has a token's signs stays."""
    assert GUARD.shatter(text) == broken


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-5-mini", "gpt o1 o3 o4 chatgpt codex"),
        ("Qwen/Qwen3-32B", "qwen qwq qvq"),
        *(("some-model", None), ("intellect-2", None), ("ringo-9b", None)),
    ],
)
def test_the_family_of_a_model(model: str, family: str | None) -> None:
    """It is read from the start of the name, without the vendor's."""
    assert family_of(model) == family
