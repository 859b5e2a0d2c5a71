from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from smena.demo.purchases import SAMPLE, Purchase, count_zero_amounts, read_purchases
from smena.errors import ConfigurationError


def test_sample_holds_6919_purchases_of_2357_customers() -> None:
    purchases = list(read_purchases())

    assert [purchase.number for purchase in purchases] == list(range(1, 6920))
    assert len({purchase.customer for purchase in purchases}) == 2357
    assert min(purchase.date for purchase in purchases) == date(1997, 1, 1)
    assert max(purchase.date for purchase in purchases) == date(1998, 6, 30)


def test_first_and_last_purchase_are_read_exactly() -> None:
    purchases = list(read_purchases())

    assert purchases[0] == Purchase(1, 4, date(1997, 1, 1), 2, Decimal("29.33"))
    assert purchases[-1] == Purchase(6919, 23569, date(1997, 3, 25), 2, Decimal("25.74"))


def test_zero_amounts_are_counted_in_the_input() -> None:
    assert count_zero_amounts(read_purchases()) == 8
    # The same, counted in the raw text.
    assert Counter(line.split()[-1] for line in SAMPLE.read_text().splitlines())["0.00"] == 8


def test_sample_is_byte_for_byte_with_its_line_ends() -> None:
    assert SAMPLE.read_bytes().count(b"\r\n") == 6919


def test_master_format_has_headings_and_no_sample_column(tmp_path: Path) -> None:
    path = tmp_path / "master.txt"
    path.write_bytes(
        b" 00 customer_id  date number_of_cds  dollar_value\r\n"
        b" 00001 19970101  1   11.77\r\n"
        b" 00002 19970112  5   77.00\r\n"
    )

    assert list(read_purchases(path)) == [
        Purchase(1, 1, date(1997, 1, 1), 1, Decimal("11.77")),
        Purchase(2, 2, date(1997, 1, 12), 5, Decimal("77.00")),
    ]


def test_blank_lines_are_no_purchases_but_count_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("\n 1 19970101 1 11.77\n\n 2 19970102 1 x\n")

    purchases = read_purchases(path)

    assert next(purchases).number == 1
    with pytest.raises(ConfigurationError, match="line 4 "):
        next(purchases)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 2 19970101 1 11.77 9", "it has 6 columns, those before it 5"),
        ("1 19970101 1 11.77", "it has 4 columns, those before it 5"),
        ("x 2 19970101 1 11.77", "customer 'x' is not a whole number"),
        ("1 2 19970230 1 11.77", "date '19970230' is not a day written YYYYMMDD"),
        ("1 2 1997011 1 11.77", "date '1997011' is not a day"),
        ("1 2 19970101 1.5 11.77", "quantity '1.5' is not a whole number"),
        ("1 2 19970101 ² 11.77", "quantity '[^']+' is not a whole number"),
        ("1 2 19970101 1 11.7", "amount '11.7' is not a number with two decimals"),
        ("1 2 19970101 1 NaN", "amount 'NaN' is not"),
        ("1 2 19970101 1 -1.00", "amount '-1.00' is not"),
    ],
)
def test_bad_line_is_named_with_file_line_and_reason(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "purchases.txt"
    path.write_text(f"4 1 19970101 2 29.33\n{line}\n4 1 19970101 2 29.33\n", encoding="utf-8")

    with pytest.raises(ConfigurationError, match=rf"purchases\.txt, line 2 is not a purchase: .*{reason}"):
        list(read_purchases(path))


def test_first_line_must_have_a_known_number_of_columns(tmp_path: Path) -> None:
    path = tmp_path / "purchases.csv"
    path.write_text("1,19970101,1,11.77\n")

    with pytest.raises(ConfigurationError, match=r"line 1 .* 1 columns, not 5 \(sample\) or 4 \(master file\)"):
        list(read_purchases(path))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read from .*nowhere\.txt: No such file"):
        list(read_purchases(tmp_path / "nowhere.txt"))
