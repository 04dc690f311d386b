"""Conditions on fields: what they find, and the words in which they are refused."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.tables.conditions import BadCondition, condition

ROW = {
    "key": "north-7",
    "value": {
        **{"price": 12.5, "count": 3, "open": True, "name": 'a "b"', "none": None, "unit price": 4},
        **{"tags": ["red", "blue"], "by_day": [("mon", 1), ("tue", 2)], "raw": b"\x01\xff"},
        **{"cost": Decimal("9.90"), "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "day": date(2026, 1, 31)},
    },
    "expires": None,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('key = "north-7"', True),
        ("key == 'north-8'", False),
        ('key != "north-8"', True),
        ('key contains "north"', True),
        ("value.price > 12", True),
        ("value.price >= 12.5 and value.count < 3", False),
        ("value.price >= 12.5 or value.count < 3", True),
        ("value.count = 3.0", True),
        ("value.count > -1", True),
        ("value.count > 1e3", False),
        ("not value.count = 3", False),
        ("value.count = 1 or value.count = 3 and value.open = true", True),
        ("(value.count = 1 or value.count = 3) and value.open = false", False),
        ("other = 1 or value.open = TRUE", True),
        ("value.none = null", True),
        ("value.price != null", True),
        ("expires = null", True),
        ("value.none > 5", False),
        ("value.missing = 1", False),
        ('value."unit price" = 4', True),
        ('value.name = "a \\"b\\""', True),
        ('value.tags contains "red"', True),
        ('value.tags contains "re"', False),
        ('value.tags.1 = "blue"', True),
        ("value.tags.9 = 1", False),
        ("value.by_day.tue = 2", True),
        ('value.by_day contains "mon"', True),
        ('value contains "price"', True),
        ('value.raw = "0x01ff"', True),
        ("value.cost = 9.9", True),
        ('value.at > "2026-01-31T11:00:00"', True),
        ('value.at > "2026-01-31T13:00:00+02:00"', True),
        ('value.day = "2026-01-31"', True),
        ('"blue"', True),
        ("'north'", True),
        ('"12.5"', True),
        ('"green"', False),
    ],
)
def test_a_condition_finds_the_rows_that_fulfil_it(text, holds):
    assert condition(text)(ROW) is holds


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        ("", "the end where it needs a field", "value.price > 10"),
        ("value.price", "compared with nothing", '"value.price"'),
        ("value.price >", "where it needs a number", "value.price > 10"),
        ("value.price > ten", "ten, which is not a value", '"ten"'),
        ("value.price > 1 value.count = 2", "where it needs and, or", "value.price > 10"),
        ("(value.price > 1", "closing parenthesis", "value.price > 10"),
        ('key = "north', "no closing quote", "Add the quote"),
        ("price > 1", "no column 'price', only key, value, expires", "value.price"),
        ("__import__('os')", "no column '__import__'", "value.price"),
        ("value.count > true", "does not order", "= or !="),
        ("; drop", "not a condition", "value.price > 10"),
        ("(" * 100 + "key = 1" + ")" * 100, "nested more than 50", "parentheses"),
        ("key = 1 or " * 2000, "more than 10,000 characters", "Shorten"),
    ],
)
def test_a_condition_that_cannot_be_understood_is_refused_in_words(text, said, fix):
    with pytest.raises(BadCondition) as caught:
        condition(text, list(ROW))
    assert said in caught.value.statement()
    assert fix in (caught.value.fix or "")


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        ("key > 5", "type str, which cannot be compared with 5", '"5"'),
        ('value.price = "12"', 'type float, which cannot be compared with "12"', "a number without quotes"),
        ("value.open = 1", "type bool", "true or false"),
        ("value.count = true", "type int, which cannot be compared with true", "Compare it with"),
        ("value = 5", "several parts", "value.price"),
        ("value.tags > 5", "several parts", "value.tags.0"),
        ('value.at > "noon"', "type datetime", "2026-01-31T12:00:00"),
        ("value.raw = 5", "type bytes", "0x"),
        ('value.raw = "xyz"', "type bytes", "Compare"),
        ("key contains 7", "is text", '"7"'),
    ],
)
def test_a_comparison_that_does_not_fit_the_field_is_refused_in_words(text, said, fix):
    with pytest.raises(BadCondition) as caught:
        condition(text)(ROW)
    assert said in caught.value.statement()
    assert fix in (caught.value.fix or "")


@given(
    st.text()
    | st.lists(
        st.sampled_from(
            ["key", "value.price", "=", "<", "(", ")", "and", "or", "not", "1", '"a"', "contains", "null", "."]
        )
    ).map(" ".join)
)
def test_any_text_is_a_condition_or_refused_in_words(text):
    try:
        found = condition(text)(ROW)
    except BadCondition as error:
        found = bool(error.fix)
        refused = True
    else:
        refused = False
    assert found in ((True,) if refused else (True, False))
