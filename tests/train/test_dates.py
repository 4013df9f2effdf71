from __future__ import annotations

import datetime
import sys

import pytest
from babel import Locale

from tfexport_runtime.errors import UnavailableError
from tfexport_train.corpus import Corpus
from tfexport_train.dates import LOCALES, date_formats, make_dates
from tfexport_train.settings import DatesSettings


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return make_dates(DatesSettings(train_pairs=6000, valid_pairs=300, test_pairs=700))


def test_the_wanted_numbers_and_the_same_again_for_a_seed(corpus: Corpus) -> None:
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == (6000, 300, 700)
    assert make_dates(DatesSettings(train_pairs=6000, valid_pairs=300, test_pairs=700)) == corpus
    assert make_dates(DatesSettings(train_pairs=6000, valid_pairs=300, test_pairs=700, seed=2)) != corpus


def test_no_date_of_one_part_occurs_in_another(corpus: Corpus) -> None:
    train, valid, test = ({iso for _, iso in part} for part in (corpus.train, corpus.valid, corpus.test))
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_the_text_says_the_date(corpus: Corpus) -> None:
    for text, iso in corpus.train:
        date = datetime.date.fromisoformat(iso)
        assert 1950 <= date.year <= 2049
        assert str(date.day) in text
        assert str(date.year) in text or f"{date.year % 100:02}" in text
        assert str(date.month) in text or any(name in text for name in month_names(date.month)), text


def month_names(month: int) -> set[str]:
    locales = [Locale.parse(name) for name in LOCALES]
    return {
        locale.months[context][width][month]
        for locale in locales
        for context in ("format", "stand-alone")
        for width in ("wide", "abbreviated")
    }


def test_a_text_names_one_date_only() -> None:
    """Every format of every locale over four years, and over the same days of other decades."""
    days = [datetime.date(1999, 12, 1) + datetime.timedelta(days=i) for i in range(800)]
    days += [datetime.date(year, month, 3) for year in (1950, 1969, 2026, 2049) for month in range(1, 13)]
    meaning: dict[str, datetime.date] = {}
    for form in date_formats():
        for day in days:
            assert meaning.setdefault(form(day), day) == day, form(day)


def test_known_formats() -> None:
    date = datetime.date(2026, 3, 3)
    texts = {form(date) for form in date_formats()}
    assert {"Dienstag, 3. März 2026", "mar. 3 mars 2026", "[en_US] 3/3/26", "[en_GB] 03/03/2026"} <= texts


def test_without_babel_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(UnavailableError, match=r'pip install "tfexport\[demo\]"'):
        make_dates(DatesSettings())
