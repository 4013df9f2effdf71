"""From texts to translations: places, limits, batches, prefixes and callbacks, over a table model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.search.table_model import HistoryCache, Table, TableModel
from tfexport_runtime.errors import InputError, OptionError, TruncationWarning
from tfexport_runtime.options import Progress, TranslationOptions
from tfexport_runtime.step_model import Target
from tfexport_runtime.tokenizer import TokenListTokenizer
from tfexport_runtime.translation import EMPTY, Translation, Vocabularies, translate

WORDS = ["<pad>", "<s>", "</s>", "<unk>", *"abcdefgh"]
PAD, START, EOS, UNK = range(4)
TOKENIZER = TokenListTokenizer("\n".join(WORDS).encode(), UNK, " ")
VOCABULARIES = Vocabularies(TOKENIZER, TOKENIZER, before=(START,), after=(EOS,), max_source_length=10)
TARGET = Target(len(WORDS), START, EOS, (PAD, START), max_length=10)
TEXTS = ["a b c", "d", "e f g h a b c d", "b a", "h h h h", "c c", "a b c d e"]


@dataclass(frozen=True)
class RecordingModel(TableModel):
    """Remembers the batches that were started."""

    batches: list[list[tuple[int, ...]]] = field(default_factory=list)

    def start(self, sources: Sequence[Sequence[int]], beam_size: int) -> HistoryCache:
        self.batches.append([tuple(s) for s in sources])
        return super().start(sources, beam_size)


def model(seed: int = 1) -> RecordingModel:
    return RecordingModel(Table(seed, len(WORDS), raised={EOS: -0.5}), len(WORDS), START)


def run(
    texts: Sequence[str], prefixes: Sequence[str] | None = None, with_model: TableModel | None = None, **options: Any
) -> list[Translation]:
    return translate(with_model or model(), VOCABULARIES, TARGET, texts, TranslationOptions(**options), prefixes)


def test_the_encoder_reads_the_ids_between_start_and_end() -> None:
    recorder = model()
    run(["a zebra h"], with_model=recorder)
    assert recorder.batches == [[(START, 4, UNK, 11, EOS)]]


@pytest.mark.parametrize("options", [{"beam_size": 2, "n_best": 2}, {"sampling": True, "n_best": 3}], ids=str)
def test_empty_texts_keep_their_place(options: dict[str, Any]) -> None:
    texts = ["", "a b", " \t\u3000", "d", "\n"]
    results = run(texts, **options)
    assert [r == EMPTY for r in results] == [True, False, True, False, True]
    assert [results[1], results[3]] == run(["a b", "d"], **options)
    assert EMPTY.text == ""
    assert not EMPTY.best.truncated


@pytest.mark.parametrize("options", [{}, {"beam_size": 3, "n_best": 3}, {"sampling": True, "n_best": 4}], ids=str)
def test_batches_side_by_side_give_what_they_give_one_by_one(options: dict[str, Any]) -> None:
    chosen = TranslationOptions(max_batch_tokens=12, **options)
    one_by_one = translate(model(), VOCABULARIES, TARGET, TEXTS, chosen)
    recorder = model()
    assert translate(recorder, VOCABULARIES, TARGET, TEXTS, chosen, parallel_batches=3) == one_by_one
    assert len(recorder.batches) >= 3


def test_a_small_job_is_shared_by_all_that_run_at_the_same_time() -> None:
    recorder = model()
    translate(recorder, VOCABULARIES, TARGET, ["a b", "c d", "e f", "g h"], TranslationOptions(), parallel_batches=2)
    assert sorted(map(len, recorder.batches)) == [2, 2]


def test_an_error_in_one_of_several_batches_is_heard() -> None:
    def stop(progress: Progress) -> bool:
        raise RuntimeError(f"sentence {progress.sentence}")

    with pytest.raises(RuntimeError, match="sentence"):
        translate(model(), VOCABULARIES, TARGET, TEXTS, TranslationOptions(callback=stop), parallel_batches=2)


def test_without_any_token_no_model_runs() -> None:
    recorder = model()
    assert run([], with_model=recorder) == []
    assert run(["", " "], with_model=recorder) == [EMPTY, EMPTY]
    assert recorder.batches == []


def test_a_text_that_is_too_long_is_named_before_any_work() -> None:
    recorder = model()
    with pytest.raises(InputError, match=r"^text 2 has 9 tokens, the model takes 8; .*truncate_source$") as caught:
        run(["a", "a b c d e f g h a"], with_model=recorder)
    assert caught.value.index == 1
    assert recorder.batches == []


def test_a_text_of_the_longest_length_is_taken() -> None:
    recorder = model()
    run(["a b c d e f g h"], with_model=recorder)
    assert len(recorder.batches[0][0]) == 10


def test_truncation_on_request_warns_and_keeps_the_beginning() -> None:
    with pytest.warns(TruncationWarning, match="^text 2 was cut from 10 to 8 tokens$"):
        results = run(["a", "a b c d e f g h a b"], truncate_source=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert results == run(["a", "a b c d e f g h"], truncate_source=True)


@pytest.mark.parametrize("options", [{}, {"beam_size": 3, "n_best": 2}, {"sampling": True, "n_best": 2}], ids=str)
def test_batches_keep_to_the_limit_and_change_nothing(options: dict[str, Any]) -> None:
    together = model()
    expected = run(TEXTS, with_model=together, **options)
    assert len(together.batches) == 1
    beams = options.get("beam_size", 1)
    for limit in (1, 12, 30, 31, 60, 1000):
        recorder = model()
        assert run(TEXTS, with_model=recorder, max_batch_tokens=limit, **options) == expected
        for batch in recorder.batches:
            assert len(batch) == 1 or len(batch) * max(map(len, batch)) * beams <= limit
        lengths = [len(source) for batch in recorder.batches for source in batch]
        assert lengths == sorted(lengths, reverse=True)
    assert [run([text], **options)[0] for text in TEXTS] == expected


def test_samples_come_by_score() -> None:
    (translation,) = run(["a b c"], sampling=True, n_best=6, temperature=2.0)
    scores = [h.score for h in translation.hypotheses]
    assert len(set(scores)) > 3
    assert scores == sorted(scores, reverse=True)
    assert translation.best is translation.hypotheses[0]


def test_text_tokens_and_ids_agree() -> None:
    for translation in run(TEXTS, beam_size=3, n_best=3):
        for hypothesis in translation.hypotheses:
            assert hypothesis.tokens == tuple(WORDS[i] for i in hypothesis.ids)
            assert hypothesis.text == " ".join(hypothesis.tokens)


def test_a_cut_hypothesis_says_so() -> None:
    (cut,) = run(["a b c"], max_length=3, suppress_tokens=(EOS,))
    assert cut.best.truncated
    assert len(cut.best.ids) == 3
    whole = Table(1, len(WORDS), raised={EOS: 30.0})
    (ended,) = run(["a b c"], with_model=TableModel(whole, len(WORDS), START))
    assert not ended.best.truncated
    assert ended.best.ids == ()
    assert len(ended.best.token_scores) == 1


@pytest.mark.parametrize(("options", "limit"), [({}, 6), ({"max_length_ratio": 0.9}, 5), ({"max_length": 2}, 2)])
def test_the_length_limit_counts_all_ids_that_the_encoder_reads(options: dict[str, Any], limit: int) -> None:
    """The source has 3 ids with start and end; 0.9 of them are 2."""
    given: dict[str, Any] = {"max_length_ratio": 1.0, "max_length_extra": 3, "suppress_tokens": (EOS,), **options}
    assert len(run(["a"], **given)[0].best.ids) == limit


def test_without_any_limit_the_model_limits() -> None:
    (cut,) = run(["a"], max_length_ratio=None, suppress_tokens=(EOS,))
    assert len(cut.best.ids) == 10
    (prefixed,) = run(["a"], ["b c d"], max_length_ratio=None, suppress_tokens=(EOS,))
    assert len(prefixed.best.ids) == 10
    assert run(["a"], max_length_ratio=float("inf"), suppress_tokens=(EOS,)) == [cut]


def test_a_hard_prefix_begins_every_hypothesis_and_scores_nothing() -> None:
    results = run(["a b", "c d", "e"], ["f", "", "g h <pad>"], beam_size=3, n_best=3)
    for translation, prefix in zip(results, [(9,), (), (10, 11, PAD)], strict=True):
        for hypothesis in translation.hypotheses:
            assert hypothesis.ids[: len(prefix)] == prefix
            assert hypothesis.token_scores[: len(prefix)] == (0.0,) * len(prefix)
    assert results[1] == run(["c d"], beam_size=3, n_best=3)[0]


def test_a_soft_prefix_is_followed_as_far_as_it_is_strong() -> None:
    prefix = "b c d e f g"
    followed = [
        _common(run(["a"], [prefix], prefix_strength=strength)[0].best.ids, (5, 6, 7, 8, 9, 10))
        for strength in (1e-6, 0.2, 0.999999)
    ]
    assert followed == sorted(followed)
    assert followed[0] < 6
    assert followed[-1] == 6


def _common(ids: tuple[int, ...], prefix: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(ids, prefix, strict=False)) if a != b), min(len(ids), len(prefix)))


def test_a_hard_prefix_needs_room_and_a_soft_one_does_not() -> None:
    long = " ".join(["a"] * 10)
    with pytest.raises(InputError, match=r"^text 2 has a prefix of 10 tokens, .* the model takes 10$"):
        run(["a", "b"], ["", long])
    assert len(run(["a", "b"], ["", long], prefix_strength=0.9)) == 2


def test_prefix_ids_of_the_bundle_take_room_from_a_prefix_and_from_the_output() -> None:
    target = replace(TARGET, prefix_ids=(4, 5))
    options = TranslationOptions(max_length_ratio=None, suppress_tokens=(EOS,))
    (translation,) = translate(model(), VOCABULARIES, target, ["a"], options)
    assert len(translation.best.ids) == len(translation.best.token_scores) == 8
    with pytest.raises(InputError, match=r"^text 1 has a prefix of 8 tokens, .* the model takes 8$"):
        translate(model(), VOCABULARIES, target, ["a"], options, [" ".join(["a"] * 8)])


def test_ids_around_the_source_take_room_from_it() -> None:
    vocabularies = replace(VOCABULARIES, before=(START, 6), after=(EOS, 7))
    recorder = model()
    options = TranslationOptions(truncate_source=True)
    with pytest.warns(TruncationWarning, match="^text 1 was cut from 8 to 6 tokens$"):
        translate(recorder, vocabularies, TARGET, ["a b c d e f g h"], options)
    assert recorder.batches == [[(START, 6, 4, 5, 6, 7, 8, 9, EOS, 7)]]


def test_limits_that_leave_no_output_are_refused_by_name() -> None:
    with pytest.raises(
        InputError, match=r"^text 2 has 3 tokens, for which max_length_ratio 0.3 and max_length_extra 0"
    ):
        run(["a b c", "b"], max_length_ratio=0.3, max_length_extra=0)


def test_prefixes_must_be_as_many_as_texts() -> None:
    with pytest.raises(OptionError, match=r"^1 prefixes for 2 texts$"):
        run(["a", "b"], ["c"])
    with pytest.raises(OptionError, match="list of texts"):
        run("a b")


def test_contradictions_are_refused_before_texts_are_read() -> None:
    with pytest.raises(OptionError, match="n_best 2 needs a beam_size of at least 2"):
        run(["a " * 50], n_best=2)


def test_the_callback_names_the_texts_of_the_caller() -> None:
    seen: dict[tuple[int, int], list[Progress]] = {}

    def watch(progress: Progress) -> None:
        seen.setdefault((progress.sentence, progress.sample), []).append(progress)

    texts = ["", "a", "b c d e f", " ", "c"]
    results = run(texts, sampling=True, n_best=2, max_batch_tokens=8, callback=watch)
    assert sorted(seen) == [(i, k) for i in (1, 2, 4) for k in (0, 1)]
    for (sentence, _), calls in seen.items():
        final = {h.ids: sum(h.token_scores) for h in results[sentence].hypotheses}
        assert final[calls[-1].tokens] == pytest.approx(calls[-1].score)
        assert [len(c.tokens) for c in calls[:-1]] == list(range(1, len(calls)))


def test_a_callback_can_cancel_one_sentence() -> None:
    results = run(["a", "b c d"], callback=lambda p: p.sentence == 1, suppress_tokens=(EOS,))
    assert [r.best.finish_reason for r in results] == ["length", "cancelled"]
    assert [r.best.truncated for r in results] == [True, True]
    assert len(results[1].best.ids) == 1
