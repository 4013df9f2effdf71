"""The PyTorch side of the search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.train.test_model import small_model
from tfexport_runtime.errors import InputError, TruncationWarning
from tfexport_runtime.options import TranslationOptions
from tfexport_train.checkpoint import TextSide
from tfexport_train.decoding import TorchStepModel, best, evaluating
from tfexport_train.evaluate import TorchTranslator, bleu, chrf, exact_match
from tfexport_train.init import word_list

VALUES = st.lists(st.lists(st.integers(-2, 2), min_size=7, max_size=7), min_size=1, max_size=4)


@given(rows=VALUES, count=st.integers(1, 7))
def test_best_orders_by_value_then_by_lower_id(rows: list[list[int]], count: int) -> None:
    values, ids = best(torch.tensor(rows, dtype=torch.float32), count)
    for row, row_values, row_ids in zip(rows, values.tolist(), ids.tolist(), strict=True):
        expected = sorted(range(7), key=lambda i: (-row[i], i))[:count]
        assert row_ids == expected
        assert row_values == [row[i] for i in expected]


def test_step_adds_the_bias_before_the_softmax() -> None:
    model = TorchStepModel(small_model())
    tokens, bias = np.array([1, 1]), np.zeros(20, np.float32)
    bias[[0, 5]] = -np.inf
    logits, _ = model.step_logits(tokens, model.start([[5, 2], [7, 6, 2]], 1))
    candidates, _ = model.step(tokens, model.start([[5, 2], [7, 6, 2]], 1), bias, 20)
    expected = torch.log_softmax(torch.from_numpy(logits + bias), -1).numpy()
    np.testing.assert_allclose(np.take_along_axis(expected, candidates.ids, 1), candidates.log_probs, atol=1e-6)
    assert candidates.ids[:, -2:].tolist() == [[0, 5], [0, 5]]
    assert candidates.log_probs.dtype == np.float32
    assert candidates.ids.dtype == np.int64


def test_evaluating_restores_the_mode() -> None:
    model = small_model().train()
    with evaluating(model):
        assert not model.training
    assert model.training


def translator(**changes: Any) -> TorchTranslator:
    model = small_model("modern-base", changes)
    return TorchTranslator(model, word_list(23), word_list(20))


def teacher_forced(t: TorchTranslator, text: str, ids: tuple[int, ...]) -> list[float]:
    source = [*t.source.tokenizer(3).encode(text), 2]
    with torch.inference_mode():
        logits = t.model(torch.tensor([source]), torch.tensor([[1, *ids]]))[0]
    never = torch.zeros(20)
    never[[0, 1]] = -torch.inf
    return (logits + never).log_softmax(-1).gather(1, torch.tensor([*ids, 2])[:, None])[:, 0].tolist()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_scores_are_those_of_teacher_forcing_and_batches_change_nothing(beam_size: int) -> None:
    texts = ["t5 t9 t4", "t7", "", "t4 t4 t8 t9 t12 t11 t6", "  ", "t22 t21"]
    t = translator()
    options = TranslationOptions(beam_size=beam_size, n_best=beam_size, length_penalty="none", max_length=12)
    results = t.translate(texts, options)
    small_batches = t.translate(texts, options.with_changes({"max_batch_tokens": 1}))
    assert [len(r.hypotheses) for r in results] == [beam_size, beam_size, 1, beam_size, 1, beam_size]
    for text, result, alone in zip(texts, results, small_batches, strict=True):
        for hypothesis, other in zip(result.hypotheses, alone.hypotheses, strict=True):
            if not text.strip():
                assert (hypothesis.text, hypothesis.ids) == ("", ())
                continue
            assert hypothesis.ids == other.ids
            assert hypothesis.score == pytest.approx(other.score, abs=1e-5)
            expected = teacher_forced(t, text, hypothesis.ids)[: len(hypothesis.token_scores)]
            assert hypothesis.token_scores == pytest.approx(expected, abs=1e-4)
            assert hypothesis.score == pytest.approx(sum(expected), abs=1e-4)


def test_a_text_beyond_the_limit_is_refused_or_cut() -> None:
    t = translator(max_positions=5)
    options = TranslationOptions(max_length=3)
    with pytest.raises(InputError, match="text 1 has 6 tokens, the model takes 4"):
        t.translate(["t4 t4 t4 t4 t4 t4"], options)
    with pytest.warns(TruncationWarning, match="cut from 6 to 4 tokens"):
        cut = t.translate(["t4 t4 t4 t4 t4 t4", "t4 t4 t4 t4"], options.with_changes({"truncate_source": True}))
    assert cut[0] == cut[1]


def test_a_source_with_start_token_gets_one() -> None:
    t = translator()
    with_start = TorchTranslator(t.model, TextSide(t.source.kind, t.source.model, add_bos=True), t.target)
    options = TranslationOptions(max_length=5)
    with torch.inference_mode():
        memory = t.model.encode(torch.tensor([[1, 7, 2]]), torch.ones(1, 3, dtype=torch.bool))
        logits = t.model.decode(memory, torch.ones(1, 3, dtype=torch.bool), torch.tensor([[1]]))[0, 0]
    expected = logits.index_fill(0, torch.tensor([0, 1]), -torch.inf).log_softmax(-1).max().item()
    assert with_start.translate(["t7"], options)[0].best.token_scores[0] == pytest.approx(expected, abs=1e-5)


def test_metrics() -> None:
    references = ["the cat sat on the mat today", "a dog"]
    assert bleu(references, references) == pytest.approx(100)
    assert chrf(references, references) == pytest.approx(100)
    assert exact_match(["the cat sat on the mat today", "a Dog"], references) == 50
    assert bleu(["the cat sat on a mat", "a dog"], references) < 80
