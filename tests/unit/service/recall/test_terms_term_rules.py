"""The name of the rules that terms are made by."""

from service.recall.terms import term_rules


def test_the_rules_have_the_name_that_databases_have_noted() -> None:
    """Where this fails, rows are found by other terms than before, and need `ctxb db reindex`.

    Write the new name here, and into the list of changes that an upgrade needs that command.
    """
    assert term_rules() == "1-bd9795340947"
