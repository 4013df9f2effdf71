"""The search of the runtime against the specification, on batches of everything that the options allow."""

from __future__ import annotations

from hypothesis import given

from tests.search.cases import Case, assert_same, decode_watched, examples, expect, search_cases, stopping_cases


def assert_agrees(case: Case) -> None:
    found, seen = decode_watched(case)
    for request, hypotheses, calls in zip(case.requests(), found, seen, strict=True):
        expected, expected_calls = expect(case, request)
        assert_same(hypotheses, expected)
        assert [c[:2] for c in calls] == [c[:2] for c in expected_calls]


@examples(300)
@given(case=search_cases())
def test_beam_search_is_what_the_specification_says(case: Case) -> None:
    assert_agrees(case)


@examples(100)
@given(case=search_cases(sampling=True))
def test_sampling_is_what_the_specification_says(case: Case) -> None:
    assert_agrees(case)


@examples(120)
@given(case=stopping_cases())
def test_the_search_stops_when_the_specification_says(case: Case) -> None:
    assert_agrees(case)
