"""Records are printed as in Flink."""

import datetime
from decimal import Decimal

import pytest

from penstock.common import Instant, Row, RowKind, Types
from penstock.common.display import shower
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import JobHarness

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        (Types.STRING(), "it's", "it's"),
        (Types.STRING(), None, "null"),
        (Types.INT(), -7, "-7"),
        (Types.BIG_INT(), 10**30, "1" + "0" * 30),
        (Types.BIG_DEC(), Decimal("1.50"), "1.50"),
        (Types.BOOLEAN(), True, "true"),
        (Types.BOOLEAN(), False, "false"),
        (PAIR, ("To", 1), "(To,1)"),
        (PERSON, Row(name="Ann", age=5), "+I[Ann, 5]"),
        (Types.ROW([Types.STRING(), Types.INT()]), Row("Ann", None), "+I[Ann, null]"),
        (PERSON, Row.of_kind(RowKind.DELETE, "Ann", 5), "-D[Ann, 5]"),
        (Types.LIST(Types.STRING()), ["a", None, "b c"], "[a, null, b c]"),
        (Types.LIST(PAIR), [("a", 1), ("b", 2)], "[(a,1), (b,2)]"),
        (Types.MAP(Types.STRING(), Types.BOOLEAN()), {"a": True, "b": None}, "{a=true, b=null}"),
        (Types.BASIC_ARRAY(Types.INT()), [1, 2], "[1, 2]"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x01\xff", "[1, -1]"),
        (Types.TUPLE([PERSON, Types.LIST(Types.DOUBLE())]), (Row("Ann", 5), [1.0, 2.5]), "(+I[Ann, 5],[1.0, 2.5])"),
        (Types.SQL_DATE(), datetime.date(2026, 7, 1), "2026-07-01"),
        (Types.SQL_TIME(), datetime.time(9, 5), "09:05:00"),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2026, 7, 1, 9, 5), "2026-07-01 09:05:00.0"),
        (Types.SQL_TIMESTAMP(), datetime.datetime(985, 7, 1, 9, 5, 3, 120), "0985-07-01 09:05:03.00012"),
        (Types.INSTANT(), Instant.of_epoch_milli(-1), "1969-12-31T23:59:59.999Z"),
        (Types.INSTANT(), Instant.of_epoch_milli(0), "1970-01-01T00:00:00Z"),
    ],
)
def test_a_record_of_a_declared_type_prints_as_in_java(declared, value, text):
    assert shower(declared)(value) == text


# Follows the specification of Double.toString.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (0.1, "0.1"),
        (123.456, "123.456"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (-0.0125, "-0.0125"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (1e22, "1.0E22"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "5.0E-324"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_a_double_prints_as_in_java(value, text):
    assert shower(Types.DOUBLE())(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (16777216.0, "1.6777216E7"),
        (1 / 3, "0.33333334"),
        (3.4028234663852886e38, "3.4028235E38"),
        (0.0, "0.0"),
    ],
)
def test_a_float_prints_with_the_precision_of_32_bits(value, text):
    assert shower(Types.FLOAT())(value) == text


@pytest.mark.parametrize("declared", [None, Types.PICKLED_BYTE_ARRAY(), tuple[str, int]])
def test_a_record_without_a_flink_type_prints_as_in_python(declared):
    assert shower(declared)(("To", 1)) == "('To', 1)"
    assert shower(declared)(None) == "None"


class TestPrint:
    def printed(self, stream, capsys):
        stream.print()
        with JobHarness(stream.get_execution_environment()) as job:
            job.run()
        return capsys.readouterr().out.splitlines()

    def words(self, **types):
        env = StreamExecutionEnvironment.get_execution_environment()
        return env.from_collection(["to", "be", "to"]).map(lambda word: (word, 1), **types)

    def test_print_shows_declared_types_in_java_notation(self, capsys):
        assert self.printed(self.words(output_type=PAIR), capsys) == ["(to,1)", "(be,1)", "(to,1)"]

    def test_print_shows_undeclared_types_in_python_notation(self, capsys):
        assert self.printed(self.words(), capsys) == ["('to', 1)", "('be', 1)", "('to', 1)"]

    def test_reduce_filter_and_union_preserve_the_declared_type(self, capsys):
        sums = self.words(output_type=PAIR).key_by(lambda pair: pair[0]).sum(1).filter(lambda pair: True)
        assert sorted(self.printed(sums.union(sums), capsys)) == ["(be,1)"] * 2 + ["(to,1)"] * 2 + ["(to,2)"] * 2
