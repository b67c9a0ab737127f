"""Tools are ranked by what is asked, in whatever form their names are written."""

from formatters.model import Tool
from service.recall.tool_ranking import ToolIndex, tool_text


def tool(name: str, description: str = "", **parameters: str) -> Tool:
    """Return a tool with descriptions of parameters."""
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


FLIGHTS = tool("search_flights", "Search for direct flights.", origin="The city to leave from.")
WEATHER = tool("getWeatherForecast", "Tell what the sky does.")
REFUND = tool("send_certificate", "Compensate a customer.", amount="How much is refunded.")
TOOLS = [WEATHER, FLIGHTS, REFUND]


def best(question: str, *said: str) -> Tool:
    """Return the tool that scores highest."""
    scores = ToolIndex(TOOLS).rank(question, said)
    return TOOLS[max(range(len(TOOLS)), key=scores.__getitem__)]


def test_names_descriptions_and_parameters_tell() -> None:
    """In other forms of the words too, and in names whose words are joined."""
    assert best("Is there a flight tomorrow?") is FLIGHTS
    assert best("What will the weather be?") is WEATHER
    assert best("I want a refund") is REFUND


def test_what_was_said_before_counts_less() -> None:
    """But something, where the input has no word of its own."""
    assert best("yes, do that", "Shall I look for flights?", "What of the weather?") is FLIGHTS
    assert best("and the weather?", "Shall I look for flights?") is WEATHER


def test_nothing_in_common_scores_nothing() -> None:
    """And no tools have no scores."""
    assert ToolIndex(TOOLS).rank("Guten Tag") == [0, 0, 0]
    assert ToolIndex([]).rank("hello") == []


def test_long_questions_are_read_at_both_ends() -> None:
    """What is pasted in between is not."""
    assert best("weather? " + "blah " * 5_000) is WEATHER
    assert best("blah " * 5_000 + " weather?") is WEATHER


def test_whatever_a_definition_holds_is_text() -> None:
    """A tool without words, or with a schema that is none, is searched by what is there."""
    assert (
        tool_text({"function": {"name": "a", "parameters": {"properties": {"p": 5}}}}) == "a\n\np"
    )
    assert tool_text({"function": 5}).strip() == ""
    assert tool_text(WEATHER) == "getWeatherForecast\nTell what the sky does."


def test_names_count_more() -> None:
    """A tool with the requested name precedes one with the words in its parameters."""
    named, mentioning = tool("send_mail"), tool("archive", "Archive.", mail="The mail to send.")
    scores = ToolIndex([mentioning, named, REFUND]).rank("send mail")
    assert scores[1] > scores[0] > scores[2]


def test_the_language_is_that_of_the_tools() -> None:
    """Words match in their other forms, also where a question is too short to know its language."""
    tools = [
        tool("zeigen", "Die Nachrichten von heute und von gestern, die es in der Stadt gibt."),
        tool("suchen", "Ein Lied, das man in der Stadt auf der Straße und in den Bars hört."),
    ]
    scores = ToolIndex(tools).rank("Nachricht")
    assert scores[0] > scores[1]
