"""The options of modes are declared once: the parser, the help, the page and the schema say the same of them."""

from __future__ import annotations

import dataclasses
import enum
import json

import pytest

from deltacompact.base.errors import InputError
from deltacompact.base.options import declared, option
from deltacompact.base.spans import span_s
from deltacompact.cli import run
from deltacompact.iceberg_modes.modes import MAINTAIN, names, options_of
from deltacompact.iceberg_modes.options import FLAG, SHARE, WHOLE, WHOLE_OR_ZERO, OneOf, chosen_values
from docs import options_page
from sessions.documents.instruction import SCHEMA_PATH

EVERY = [(mode, mode_option) for mode in (*names(), MAINTAIN) for mode_option in declared(options_of(mode)).values()]


class Colour(enum.StrEnum):
    RED = "red"
    GREEN = "green"


@dataclasses.dataclass(frozen=True)
class Toy:
    count: int = option("count", WHOLE, 7, "how many", unit="files", also=("number",))
    share: float = option("share", SHARE, 0.5, "of which")
    on: bool = option("on", FLAG, True, "whether")
    colour: Colour = option("colour", OneOf(Colour), Colour.RED, "which")


def test_the_page_in_the_repository_is_that_of_the_declarations():
    assert options_page.PATH.read_text() == options_page.page(), "run python docs/options_page.py"


@pytest.mark.parametrize("command", ["compact", "plan", "maintain"])
def test_help_lists_every_option(command, capsys):
    assert run([command, "--help"]) == 0
    said = capsys.readouterr().out
    for mode, mode_option in EVERY:
        if (mode == MAINTAIN) == (command == "maintain"):
            assert mode_option.name in said


def test_the_schema_of_documents_knows_every_option_of_the_modes():
    of_modes = json.loads(SCHEMA_PATH.read_text())["then"]["allOf"]
    said = {rule["if"]["properties"]["mode"]["const"]: rule["then"]["properties"]["options"] for rule in of_modes}
    assert said.keys() == set(names())
    for mode, mode_option in EVERY:
        if mode != MAINTAIN:
            assert mode_option.text in said[mode]["properties"][mode_option.name]["description"]


def test_defaults_are_those_of_the_fields():
    assert Toy() == Toy(7, 0.5, True, Colour.RED)
    assert [option.default for option in declared(Toy).values()] == ["7", "0.5", "true", "red"]
    assert declared(Toy)["count"].meaning == "how many (files)" and declared(Toy)["on"].meaning == "whether"


def test_values_are_text_or_what_python_has():
    assert chosen_values(Toy, {"count": " 8 ", "on": False, "colour": "GREEN"}) == {
        "count": 8,
        "on": False,
        "colour": Colour.GREEN,
    }
    assert chosen_values(Toy, {"number": 9, "share": 1}) == {"count": 9, "share": 1.0}


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"cuont": 1}, "unknown option 'cuont': did you mean 'count'?"),
        ({"count": True}, "option count: True is not a whole number of at least 1"),
        ({"count": "²"}, "option count: '²' is not a whole number of at least 1"),
        ({"count": 2**63}, f"option count: {2**63} is not a whole number of at least 1, and at most {2**63 - 1}"),
        pytest.param(
            {"count": "9" * 5000},
            f"option count: '{'9' * 5000}' is not a whole number of at least 1, and at most {2**63 - 1}",
            id="digits",
        ),
        ({"share": "nan"}, "option share: 'nan' is not a share above 0, up to 1"),
        ({"on": 1}, "option on: 1 is neither true nor false"),
        ({"colour": "blue"}, "option colour: 'blue' is none of red, green"),
        ({"count": 1, "number": 1}, "options number and count are the same: give one of them"),
    ],
)
def test_what_does_not_fit_is_refused(chosen, said):
    with pytest.raises(InputError) as refused:
        chosen_values(Toy, chosen)
    assert str(refused.value) == said


def test_zero_where_it_may_be():
    assert WHOLE_OR_ZERO.read("n", "0") == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("1.5d", 129_600), ("8w", 4_838_400), ("250ms", 0.25), ("36 h", 129_600), ("0s", 0)]
    + [(text, None) for text in ("soon", "7", "-1h", "1.h", "1h30m", "²h", "99999999999d", "")],
)
def test_spans(text, seconds):
    assert span_s(text) == seconds
