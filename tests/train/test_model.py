"""The model against a second implementation, and its three ways of computing against each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.train.reference_transformer import reference_logits
from tfexport_train.attention import GrowingCache
from tfexport_train.config import PRESETS, EncoderDecoderConfig
from tfexport_train.layers import Dropout, UnbiasedLayerNorm, relative_buckets
from tfexport_train.model import EncoderDecoder

SMALL: dict[str, Any] = {
    "d_model": 16,
    "num_heads": 2,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "d_ff": 24,
    "max_positions": 32,
    "dropout": 0.0,
}

RELATIVE: dict[str, Any] = {"positions": "none", "relative_buckets": 8, "relative_max_distance": 10}

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in PRESETS},
    "learned positions, unscaled": ("modern-base", {"positions": "learned", "scale_embedding": False}),
    "unequal depths": ("modern-base", {"num_encoder_layers": 3, "num_decoder_layers": 1}),
    "shallow encoder": ("modern-base", {"num_encoder_layers": 1, "num_decoder_layers": 3}),
    "wide heads": ("modern-base", {"head_dim": 12, "d_model": 10}),
    "gelu": ("modern-base", {"activation": "gelu"}),
    "gelu by tanh": ("modern-base", {"activation": "gelu_tanh"}),
    "silu, post-norm, untied, bias": (
        "modern-base",
        {"activation": "silu", "norm_position": "post", "final_norm": False, "tie_output": False, "output_bias": True},
    ),
    "annotated, d_model 8": ("annotated", {"d_model": 8}),
    "relative bias": ("modern-swiglu", {**RELATIVE, "activation": "geglu_tanh", "head_dim": 12}),
    "relative bias, start is pad": ("modern-base", {**RELATIVE, "activation": "geglu", "start_id": 0}),
    "normed embedding, start is end": (
        "paper-base",
        {"positions": "learned", "embedding_norm": True, "activation": "gelu", "start_id": 2},
    ),
    "gated relu": ("modern-base", {"activation": "reglu", "embedding_norm": True}),
}

SOURCE = [5, 9, 4, 17, 2]
TARGET = [1, 8, 8, 3, 12, 6]


@pytest.fixture(params=FORMS, ids=str)
def model(request: pytest.FixtureRequest) -> EncoderDecoder:
    return small_model(*FORMS[request.param])


def small_model(preset: str = "modern-base", changes: dict[str, Any] | None = None) -> EncoderDecoder:
    shared = {**PRESETS[preset], **(changes or {})}.get("share_embeddings", False)
    config = EncoderDecoderConfig.preset(preset, 20 if shared else 23, 20, {**SMALL, **(changes or {})})
    torch.manual_seed(3)
    model = EncoderDecoder(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):  # defaults of 1 and 0 would hide a mistake
            torch.nn.init.normal_(parameter, mean=0.5)
    return model


def logits(model: EncoderDecoder, source: list[int], target: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([source]), torch.tensor([target]))[0]


def test_logits_equal_the_reference(model: EncoderDecoder) -> None:
    expected = reference_logits(model.state_dict(), model.config, SOURCE, TARGET)
    torch.testing.assert_close(logits(model, SOURCE, TARGET), expected, atol=1e-4, rtol=1e-4)


def test_step_equals_the_whole_at_every_position(model: EncoderDecoder) -> None:
    source, target = torch.tensor([SOURCE, [7, 7, 2, 0, 0]]), torch.tensor([TARGET, TARGET[:1] + TARGET[:0:-1]])
    mask = source != 0
    with torch.inference_mode():
        whole = model.decode(model.encode(source, mask), mask, target)
        cache = model.start(source, mask)
        for t in range(target.shape[1]):
            step, cache = model.step(target[:, t : t + 1], cache)
            torch.testing.assert_close(step, whole[:, t], atol=1e-5, rtol=1e-5)
    assert cache.lengths.tolist() == [6, 6]


@pytest.mark.parametrize("changes", [{}, RELATIVE], ids=["sinusoidal", "relative"])
def test_step_works_up_to_the_last_position(changes: dict[str, Any]) -> None:
    model = small_model("modern-base", changes)
    target = torch.arange(32)[None] % 20
    source, mask = torch.tensor([SOURCE]), torch.ones(1, 5, dtype=torch.bool)
    with torch.inference_mode():
        whole, cache = model(source, target), model.start(source, mask)
        for t in range(32):
            step, cache = model.step(target[:, t : t + 1], cache)
    torch.testing.assert_close(step, whole[:, 31], atol=1e-5, rtol=1e-5)


def test_rows_of_a_sentence_share_its_memory_and_move_with_select() -> None:
    model = small_model()
    source = torch.tensor([SOURCE, [7, 7, 2, 0, 0]])
    with torch.inference_mode():
        cache = model.start(source, source != 0, beams=2)
        assert cache.cross_attention[0][0].shape[0] == 2
        first = torch.tensor([[4], [5], [6], [7]])
        _, cache = model.step(first, cache)
        rows = torch.tensor([3, 2])  # the first sentence is finished, the beams of the second change places
        step, _ = model.step(torch.tensor([[8], [9]]), cache.select(rows))
        expected = torch.stack([logits(model, [7, 7, 2], [7, 8])[-1], logits(model, [7, 7, 2], [6, 9])[-1]])
    torch.testing.assert_close(step, expected, atol=1e-5, rtol=1e-5)


def test_a_later_token_never_changes_an_earlier_position(model: EncoderDecoder) -> None:
    before = logits(model, SOURCE, TARGET)
    after = logits(model, SOURCE, [*TARGET[:-1], 15])
    torch.testing.assert_close(after[:-1], before[:-1], atol=0, rtol=0)
    assert not torch.equal(after[-1], before[-1])


def test_padding_changes_nothing(model: EncoderDecoder) -> None:
    alone = logits(model, SOURCE, TARGET)
    source = torch.tensor([[*SOURCE, 0, 0, 0], [6] * 7 + [2]])
    target = torch.tensor([[*TARGET, 0, 0], [1] * 8])
    with torch.inference_mode():
        batch = model(source, target)
    torch.testing.assert_close(batch[0, : len(TARGET)], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("changes", [{}, RELATIVE], ids=["sinusoidal", "relative"])
def test_a_source_of_padding_alone_is_finite_and_leaves_the_others_alone(changes: dict[str, Any]) -> None:
    model = small_model("modern-base", changes)
    source = torch.tensor([SOURCE, [0] * 5])
    with torch.inference_mode():
        batch = model(source, torch.tensor([TARGET, TARGET]))
        step, _ = model.step(torch.tensor([[1], [1]]), model.start(source, source != 0))
    torch.testing.assert_close(batch[0], logits(model, SOURCE, TARGET), atol=1e-5, rtol=1e-5)
    assert batch.isfinite().all()
    assert step.isfinite().all()


def test_attention_weights_are_distributions_and_lead_to_the_same_output(model: EncoderDecoder) -> None:
    source, target = torch.tensor([[*SOURCE, 0, 0]]), torch.tensor([TARGET])
    with torch.inference_mode():
        weights = model.attention_weights(source, target)
    assert len(weights.encoder) == model.config.num_encoder_layers
    assert len(weights.cross) == len(weights.decoder) == model.config.num_decoder_layers
    for layer in [*weights.encoder, *weights.decoder, *weights.cross]:
        torch.testing.assert_close(layer.sum(-1), torch.ones(layer.shape[:-1]))
    assert weights.encoder[0].shape == (1, 2, 7, 7)
    assert weights.cross[0].shape == (1, 2, 6, 7)
    assert weights.cross[0][..., 5:].eq(0).all()
    assert weights.decoder[0][0, 0].triu(1).eq(0).all()


def test_looking_at_weights_needs_no_gradient_and_keeps_the_logits(model: EncoderDecoder) -> None:
    before = logits(model, SOURCE, TARGET)
    with torch.inference_mode():
        model.attention_weights(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    assert torch.equal(logits(model, SOURCE, TARGET), before)


def test_the_same_token_gives_other_logits_at_another_position() -> None:
    rows = logits(small_model(), SOURCE, [9] * 8)
    assert all(not torch.allclose(rows[i], rows[i + 1], atol=1e-4) for i in range(7))


def test_relative_buckets_of_one_distance_come_first_then_wider_ones() -> None:
    decoder = relative_buckets(32, 128, bidirectional=False).tolist()  # of offsets -128 .. 128
    assert decoder[128 - 15 : 129] == list(range(15, -1, -1))
    assert decoder[128 - 16] == decoder[128 - 18] == 16 < decoder[128 - 19]
    assert decoder[:16] == [31] * 16
    assert set(decoder[129:]) == {0}  # keys behind the query are never seen
    encoder = relative_buckets(32, 128, bidirectional=True).tolist()
    assert encoder[128 - 7 : 128 + 8] == [7, 6, 5, 4, 3, 2, 1, 0, 17, 18, 19, 20, 21, 22, 23]
    assert (encoder[0], encoder[-1]) == (15, 31)


def test_relative_bias_is_learned_with_the_rest() -> None:
    model = small_model("modern-base", RELATIVE).train()
    model(torch.tensor([SOURCE]), torch.tensor([TARGET])).square().sum().backward()
    for relative in (model.encoder_relative_bias, model.decoder_relative_bias):
        assert relative is not None
        assert relative.weight.grad is not None
        assert relative.weight.grad.abs().sum() > 0


def test_tied_tables_are_one_parameter() -> None:
    paper = small_model("paper-base")
    assert paper.output.weight is paper.target_embedding.tokens.weight is paper.source_embedding.tokens.weight
    modern = small_model("modern-base")
    assert modern.output.weight is modern.target_embedding.tokens.weight
    assert modern.output.weight is not modern.source_embedding.tokens.weight
    assert small_model("annotated").output.weight is not small_model("annotated").target_embedding.tokens.weight


def test_paper_base_has_the_published_size() -> None:
    config = EncoderDecoderConfig.preset("paper-base", 37_000, 37_000)
    with torch.device("meta"):
        count = sum(p.numel() for p in EncoderDecoder(config).parameters())
    assert 62e6 < count < 66e6  # table 3 of the paper: 65 million


@pytest.mark.parametrize("training", [False, True])
def test_unbiased_norm_is_the_formula(training: bool) -> None:
    norm = UnbiasedLayerNorm(8, 1e-6).train(training)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(3, 8)
    expected = norm.weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + norm.bias
    torch.testing.assert_close(norm(x), expected)
    native = torch.nn.functional.layer_norm(x, (8,), norm.weight, norm.bias, 1e-6)
    assert (native - expected).abs().max() > 1e-2


@pytest.mark.parametrize("training", [False, True])
def test_unbiased_norm_of_a_constant_vector_is_its_bias_with_finite_gradients(training: bool) -> None:
    norm = UnbiasedLayerNorm(8, 1e-6).train(training)
    torch.nn.init.normal_(norm.bias)
    x = torch.full((2, 8), 0.5, requires_grad=training)
    out = norm(x)
    torch.testing.assert_close(out[0], norm.bias, atol=1e-5, rtol=0)
    if training:
        out.sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    torch.manual_seed(0)
    dropout = Dropout(0.3).train()
    x = torch.ones(333, 301, requires_grad=True)
    y = dropout(x)
    assert abs((y == 0).float().mean().item() - 0.3) < 0.01
    assert sorted(y.detach().unique().tolist()) == pytest.approx([0.0, 1 / 0.7])
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())
    assert torch.equal(dropout.eval()(x), x)


def test_training_mode_drops_and_eval_mode_does_not() -> None:
    model = small_model("modern-base", {"dropout": 0.5})
    assert torch.equal(logits(model, SOURCE, TARGET), logits(model, SOURCE, TARGET))
    model.train()
    assert not torch.equal(logits(model, SOURCE, TARGET), logits(model, SOURCE, TARGET))


def test_a_step_leaves_the_cache_it_was_given_unchanged() -> None:
    model = small_model()
    source = torch.tensor([SOURCE])
    with torch.inference_mode():
        cache = model.start(source, source != 0)
        _, after = model.step(torch.tensor([[1]]), cache, GrowingCache(2))
        again, _ = model.step(torch.tensor([[1]]), cache)
        first, _ = model.step(torch.tensor([[1]]), cache)
    assert cache.lengths.tolist() == [0]
    assert after.lengths.tolist() == [1]
    assert torch.equal(again, first)
