"""The table of kinds is made from a database of meanings."""

from scripts.refresh_kinds import Meaning, make_table, read_index, read_meanings

DATA = """\
  1 The licence.
00000010 03 n 01 entity 0 002 ~ 00000020 n 0000 ~ 00000050 n 0000 | what is
00000020 03 n 02 Fruit 0 tree_fruit 1 002 ~ 00000030 n 0000 ~i 00000040 n 0000 | sweet
00000030 03 n 01 apple 0 002 @ 00000020 n 0000 ~ 00000060 n 0000 | round
00000040 03 n 01 date 1 001 @i 00000020 n 0000 | brown
00000050 03 n 01 taxonomic_group 0 001 ~ 00000040 n 0000 | a group
00000060 03 n 01 granny_smith 0 001 @ 00000030 n 0000 | green
"""
INDEX = """\
  1 The licence.
apple n 1 1 @ 1 0 00000030
date n 2 1 @ 2 0 00000070 00000040
entity n 1 1 ~ 1 0 00000010
fruit n 1 2 @ ~ 1 0 00000020
granny_smith n 1 0 1 0 00000060
taxonomic_group n 1 0 1 0 00000050
tree_fruit n 1 0 1 0 00000020
"""


def test_meanings_have_words_and_kinds() -> None:
    """Instances count as kinds; more general meanings don't."""
    assert read_meanings(DATA)[20] == Meaning(["fruit", "tree_fruit"], [30, 40])


def test_the_first_meaning_of_a_word_is_known() -> None:
    """Its number follows those of pointers and of meanings."""
    assert read_index(INDEX)["date"] == 70
    assert read_index(INDEX)["fruit"] == 20


def test_the_table_is_an_outline() -> None:
    """It has single words, stars at first meanings, and no empty or left out meanings."""
    table = make_table(read_meanings(DATA), read_index(INDEX))

    assert table == "a entity*\nb fruit*\nc apple*\nc date\n"
