"""The built-in task: a date as people of several countries write it, to ISO 8601. No file is needed.

The formats are Unicode's CLDR, by way of Babel. A format without any word or ideograph could be read in two ways
(3/4/26), so its locale stands in front: "[en_US] 3/4/26". Two-digit years are clear because the range is a century.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tfexport_runtime.errors import UnavailableError
from tfexport_train.corpus import Corpus, TextPair
from tfexport_train.settings import DatesSettings

if TYPE_CHECKING:
    from babel import Locale
    from babel.dates import DateTimePattern

LOCALES = ("de", "fr", "en_US", "en_GB", "es", "it", "nl", "pt", "pl", "sv", "da", "ja")
STYLES = ("full", "long", "medium", "short")
SKELETONS = ("yMMMEd", "yMMMMd", "yMMMMEEEEd")  # each locale orders the parts in its own way

DateFormat = Callable[[datetime.date], str]


def make_dates(settings: DatesSettings) -> Corpus:
    """Pairs like ("mar. 3 mars 2026", "2026-03-03"); no date of one part occurs in another."""
    random = np.random.default_rng(settings.seed)
    in_order = _all_dates(settings)
    dates = [in_order[i] for i in random.permutation(len(in_order))]
    held_out = min(settings.valid_pairs + settings.test_pairs, len(dates) // 2)
    for_valid = held_out * settings.valid_pairs // (settings.valid_pairs + settings.test_pairs)
    formats = date_formats()
    return Corpus(
        train=_pairs(dates[held_out:], settings.train_pairs, formats, random),
        valid=_pairs(dates[:for_valid], settings.valid_pairs, formats, random),
        test=_pairs(dates[for_valid:held_out], settings.test_pairs, formats, random),
    )


def date_formats() -> list[DateFormat]:
    """Every format of every locale. Raises UnavailableError where Babel is missing."""
    try:
        from babel import Locale
    except ImportError as error:
        raise UnavailableError('the dates come from Babel; run: pip install "tfexport[demo]"') from error
    locales = [Locale.parse(name) for name in LOCALES]
    return [_tagged(locale, form) for locale in locales for form in _formats_of(locale)]


def _formats_of(locale: Locale) -> list[DateFormat]:
    patterns = [locale.date_formats[style] for style in STYLES]
    patterns += [locale.datetime_skeletons[skeleton] for skeleton in SKELETONS if skeleton in locale.datetime_skeletons]
    different = {pattern.pattern: pattern for pattern in patterns}.values()
    return [partial(_applied, pattern, locale) for pattern in different]


def _applied(pattern: DateTimePattern, locale: Locale, date: datetime.date) -> str:
    return str(pattern.apply(date, locale))


def _tagged(locale: Locale, form: DateFormat) -> DateFormat:
    def formatted(date: datetime.date) -> str:
        text = form(date)
        return text if any(c.isalpha() for c in text) else f"[{locale}] {text}"

    return formatted


def _all_dates(settings: DatesSettings) -> list[datetime.date]:
    first, last = datetime.date(settings.first_year, 1, 1), datetime.date(settings.last_year, 12, 31)
    return [first + datetime.timedelta(days) for days in range((last - first).days + 1)]


def _pairs(
    dates: Sequence[datetime.date], count: int, formats: Sequence[DateFormat], random: np.random.Generator
) -> list[TextPair]:
    """`count` draws of a date and a format."""
    drawn = zip(random.integers(len(dates), size=count), random.integers(len(formats), size=count), strict=True)
    return [(formats[f](dates[d]), dates[d].isoformat()) for d, f in drawn]
