"""A Row behaves like PyFlink's, and is cheap to create and to pickle."""

import copy
import pickle

import pytest

from penstock.common import Row, RowKind


def test_fields_are_read_by_position_by_name_and_as_attributes():
    row = Row(name="Alice", age=11)
    assert row[0] == row["name"] == row.name == "Alice"
    assert row[1] == row["age"] == row.age == 11
    assert row[-1] == 11
    assert row[0:2] == ["Alice", 11]
    assert list(row) == ["Alice", 11]
    assert len(row) == 2


def test_field_names_keep_their_order():
    assert repr(Row(name="Alice", age=11)) == "Row(name='Alice', age=11)"


def test_a_row_without_names_has_only_positions():
    row = Row(1, "a")
    assert repr(row) == "<Row(1, 'a')>"
    assert 1 in row
    with pytest.raises(AttributeError):
        _ = row.name
    with pytest.raises(KeyError, match="no field names"):
        row["name"]
    with pytest.raises(TypeError, match="no field names"):
        row.as_dict()


def test_a_row_of_names_is_a_factory():
    person = Row("name", "age")
    alice = person("Alice", 11)
    assert alice == Row(name="Alice", age=11)
    assert "name" in alice
    assert "Alice" not in alice
    with pytest.raises(ValueError, match="2 fields but got 3"):
        person("Alice", 11, "Paris")
    with pytest.raises(TypeError, match="Only a Row of field names"):
        Row(1, 2)("Alice")


def test_a_factory_accepts_fewer_values_than_names():
    alice = Row("name", "age")("Alice")
    assert alice.name == "Alice"
    assert alice.as_dict() == {"name": "Alice"}
    with pytest.raises(AttributeError):
        _ = alice.age
    with pytest.raises(ValueError):
        alice["age"]


def test_items_can_be_set_but_attributes_cannot():
    row = Row(name="Alice", age=11)
    row["age"] = 12
    row[0] = "Bob"
    assert row == Row(name="Bob", age=12)
    with pytest.raises(AttributeError):
        row.age = 13
    with pytest.raises(ValueError, match="No field 'city'"):
        row["city"] = "Paris"


def test_positional_and_named_values_cannot_be_mixed():
    with pytest.raises(ValueError, match="not both"):
        Row(1, age=11)


def test_as_dict_converts_nested_rows_only_if_recursive():
    inner = Row(name="a", age=2)
    row = Row(key=1, value=inner, many=[inner], by_name={"a": inner})
    assert row.as_dict()["value"] is inner
    plain = {"name": "a", "age": 2}
    assert row.as_dict(True) == {"key": 1, "value": plain, "many": [plain], "by_name": {"a": plain}}


def test_equality_ignores_field_order_but_not_the_kind():
    assert Row(a=1, b=2) == Row(b=2, a=1)
    assert hash(Row(a=1, b=2)) == hash(Row(b=2, a=1))
    assert Row(a=1, b=2) != Row(a=2, b=1)
    assert Row(a=1) != Row(b=1)
    assert Row(1) != Row(a=1)
    assert Row(1, 2) == Row(1, 2)
    assert Row(1, 2) != Row(2, 1)
    assert Row(1) != (1,)
    assert Row.of_kind(RowKind.DELETE, 1) != Row(1)


def test_a_row_can_be_in_a_set():
    assert len({Row(1, 2), Row(1, 2), Row(a=1, b=2), Row(b=2, a=1)}) == 2


def test_field_names_can_be_set_later():
    row = Row(1, "a")
    row.set_field_names(["id", "name"])
    assert row == Row(id=1, name="a")
    assert row.get_fields_by_names(["name", "id"]) == ["a", 1]
    with pytest.raises(ValueError, match="No field 'city'"):
        row.get_fields_by_names(["city"])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (RowKind.INSERT, "+I"),
        (RowKind.UPDATE_BEFORE, "-U"),
        (RowKind.UPDATE_AFTER, "+U"),
        (RowKind.DELETE, "-D"),
    ],
)
def test_a_row_carries_its_kind(kind, text):
    row = Row.of_kind(kind, a=1)
    assert row.get_row_kind() is kind
    assert str(kind) == text
    assert pickle.loads(pickle.dumps(row)).get_row_kind() is kind


def test_the_fast_constructor_shares_the_names():
    names = ("id", "name")
    first, second = Row.of(names, [1, "a"]), Row.of(names, (2, "b"))
    assert first == Row(id=1, name="a")
    assert first._fields is second._fields


@pytest.mark.parametrize("row", [Row(), Row(1, "a"), Row(id=1, name="a"), Row(a=Row(b=[1]))])
def test_rows_survive_pickle_and_copies(row):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(row, protocol)) == row
    assert copy.deepcopy(row) == row


def test_a_copy_does_not_share_values():
    row = Row(id=1)
    other = copy.copy(row)
    other["id"] = 2
    assert row.id == 1


def test_rows_pickled_together_share_their_names():
    names = ("a_rather_long_name", "another_long_name")
    rows = [Row.of(names, [i, i]) for i in range(100)]
    data = pickle.dumps(rows, 5)
    assert data.count(b"a_rather_long_name") == 1
    assert len(data) < 100 * 20
    assert pickle.loads(data) == rows
