from service.recall.words import TextCache


def test_a_text_is_analysed_once() -> None:
    """What is remembered isn't asked for again; another language is another question."""
    asked: list[tuple[str, str]] = []

    def analyse(text: str, language: str) -> int:
        asked.append((text, language))
        return len(text)

    remembered = TextCache(analyse, 1_000)
    assert [remembered(text, "a") for text in ("one", "three", "one", "")] == [3, 5, 3, 0]
    assert remembered("one", "b") == 3
    assert remembered("", "a") == 0
    assert asked == [("one", "a"), ("three", "a"), ("", "a"), ("one", "b")]


def test_only_so_many_characters_are_remembered() -> None:
    """What was used last stays, what wasn't is forgotten, and there is never more than that."""
    asked: list[str] = []

    def analyse(text: str, language: str) -> str:
        asked.append(text)
        return text

    remembered = TextCache(analyse, 100)
    for number in range(40):
        remembered(f"{number:010}", "a")
        remembered("used often", "a")

    held = {*remembered._recent, *remembered._older}
    assert sum(len(text) for text, _ in held) <= 120  # the last of each generation goes beyond
    assert asked.count("used often") == 1
    remembered("0" * 10, "a")
    assert asked.count("0" * 10) == 2
