"""Random requests to two runtimes that must give the same answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.search.cases import PENALTIES, examples

Options = dict[str, Any]


def any_options(vocab_size: int) -> st.SearchStrategy[Options]:
    """A few options at and beyond the ends of what is allowed."""
    values: dict[str, Sequence[Any]] = {
        "beam_size": (1, 2, 5, 0, -1),
        "n_best": (1, 2, 5, 0, -3),
        "length_penalty": PENALTIES,
        "alpha": (0, 0.6, -10.0, 10.0, 10.000001, -11),
        "length_offset": (0, 1, 2**40, -1),
        "word_reward": (0.0, -1e6, 1e6, 1000000.5),
        "early_stopping": (True, False),
        "min_length": (0, 1, 7, 2**40, -1),
        "max_length": (None, 1, 6, 2**40, 0, -1),
        "max_length_ratio": (None, 0, 1.5, 1e300, -1e-300),
        "max_length_extra": (0, 3, 2**62, -1),
        "sampling": (True, False),
        "temperature": (1, 1e-9, 1e9, 0, 1e-10, 1.1e9),
        "top_k": (0, 1, 2**40, -1),
        "top_p": (1, 1e-300, 0, 1.0000001, -0.5),
        "seed": (0, 2**63, 2**64 - 1, -1, 2**64),
        "no_repeat_ngram_size": (0, 1, 2**40, -1),
        "repetition_penalty": (1, 0.001, 1000, 0.0009, 1000.5),
        "suppress_tokens": ((), (0,), (vocab_size - 1, 5), (vocab_size,), (-1,), tuple(range(vocab_size))),
        "prefix_strength": (1, 0.5, 1e-300, 0, 1.5),
        "truncate_source": (True, False),
        "max_batch_tokens": (1, 2**40, 0),
        "beams": (1,),
    }
    changed = st.lists(st.sampled_from(sorted(values)), max_size=4, unique=True)
    return changed.flatmap(lambda names: st.fixed_dictionaries({name: st.sampled_from(values[name]) for name in names}))


@st.composite
def requests(draw: st.DrawFn, words: Sequence[str], vocab_size: int) -> dict[str, Any]:
    """One to four texts with options that fit together, perhaps with prefixes and with a callback that cancels."""
    sampling, count = draw(st.booleans()), draw(st.integers(1, 4))
    beam_size = 1 if sampling else draw(st.sampled_from([1, 2, 4, 7]))
    min_length = draw(st.sampled_from([0, 0, 1, 4]))
    options: Options = {
        "beam_size": beam_size,
        "n_best": draw(st.integers(1, 3 if sampling else beam_size)),
        "length_penalty": draw(st.sampled_from(PENALTIES)),
        "alpha": draw(st.sampled_from([0.0, 0.6, 1.0, -0.5])),
        "length_offset": draw(st.sampled_from([0, 1])),
        "word_reward": draw(st.sampled_from([-1.0, 0.4])),
        "early_stopping": draw(st.booleans()),
        "min_length": min_length,
        "max_length": draw(st.sampled_from([None, 4, 9])),
        "max_length_ratio": draw(st.sampled_from([None, 0.0, 0.1, 2.0])),
        "max_length_extra": draw(st.sampled_from([0, 1, 12])),
        "max_batch_tokens": draw(st.sampled_from([1, 20, 2048])),
        "suppress_tokens": draw(st.lists(st.integers(0, vocab_size - 1), max_size=3)),
        "truncate_source": draw(st.booleans()),
    }
    if sampling:
        options["sampling"] = True
        options["temperature"] = draw(st.sampled_from([1.0, 0.2, 3.0]))
        options["top_k"] = draw(st.sampled_from([0, 1, 7, 5000]))
        options["top_p"] = draw(st.sampled_from([1.0, 0.9, 0.05]))
        options["seed"] = draw(st.sampled_from([0, 3, 2**33 + 5, 2**64 - 1]))
    if draw(st.booleans()):
        options["no_repeat_ngram_size"] = draw(st.sampled_from([1, 2, 3]))
        options["repetition_penalty"] = draw(st.sampled_from([1.0, 0.7, 1.3]))
    if not sampling and draw(st.booleans()):
        options["prefix_strength"] = draw(st.sampled_from([0.5, 0.99, 1e-9]))
    longest = draw(st.sampled_from([12, 12, 12, 60]))
    text = st.lists(st.sampled_from([*words, "x", "\U0001f600", "\u3000"]), max_size=longest).map(" ".join)
    beginning = st.lists(st.sampled_from([word.upper() for word in words]), max_size=3).map(" ".join)
    request = {
        "texts": draw(st.lists(text, min_size=count, max_size=count)),
        "options": options,
        "cancels": draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, 5)).map(list), max_size=2)),
    }
    if draw(st.booleans()):
        request["prefixes"] = draw(st.lists(beginning, min_size=count, max_size=count))
    return request


def collected(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """The same examples in every run."""
    found: list[Any] = []

    @examples(count)
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found
