"""A checkpoint of a tutorial's class computes what the class computes, whatever its file is wrapped in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.checkpoints.tutorial_forms import FORMS, PAD, SIZES, UNK, Form, imported, search_by_recompute
from tfexport.checkpoints.positions import is_sinusoidal
from tfexport_runtime.options import TranslationOptions
from tfexport_train.evaluate import TorchTranslator

LENGTHS = (9, 1, 4)
STOCK = "torch, batch first, post-norm, relu, 2+2"


def batch(size: int, lengths: tuple[int, ...]) -> torch.Tensor:
    """Random ids, the shorter ones padded."""
    ids = torch.randint(UNK + 1, size, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(5))
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], PAD)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_logits_of_a_ragged_batch_are_those_of_the_class(form: Form, tmp_path: Path) -> None:
    module = form.module()
    found = imported(module.state_dict(), tmp_path / "m.pt", form.facts)
    assert found.format == form.name
    source, target = batch(SIZES[0], LENGTHS), batch(SIZES[1], (6, 6, 6))
    wanted = form.logits(module, source, target)
    got = found.checkpoint.build_model()(source, target)
    if "annotated" in form.reference:
        got = got.log_softmax(-1)
    assert wanted.std() > 0.5
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_tokens_are_those_of_searching_with_the_class(form: Form, beam: int, tmp_path: Path) -> None:
    module = form.module()
    checkpoint = imported(module.state_dict(), tmp_path / "m.pt", form.facts).checkpoint
    rows = [[i for i in row if i != PAD] for row in batch(SIZES[0], LENGTHS).tolist()]
    translator = TorchTranslator.from_checkpoint(checkpoint)
    before, after = translator.vocabularies.before, translator.vocabularies.after
    length = 10 if beam == 1 else 5
    options = TranslationOptions(beam_size=beam, n_best=beam, max_length=length, no_repeat_ngram_size=1)
    found = translator.translate([" ".join(map(str, row)) for row in rows], options)
    for row, translation in zip(rows, found, strict=True):
        wanted = sorted(search_by_recompute(form, module, [*before, *row, *after], options), key=lambda r: -r.score)
        assert [h.ids for h in translation.hypotheses] == [r.ids for r in wanted]
        assert [h.score for h in translation.hypotheses] == pytest.approx([r.score for r in wanted], abs=1e-4)
    assert len({round(t.best.score, 4) for t in found}) > 1  # the source matters


def test_annotated_sources_begin_and_end_as_in_the_tutorial(tmp_path: Path) -> None:
    form = FORMS["annotated"]
    found = imported(form.module().state_dict(), tmp_path / "m.pt", form.facts)
    assert (found.checkpoint.source.add_bos, found.checkpoint.source.add_eos) == (True, True)
    assert "source_add_bos True" in " ".join(found.notes)


WRAPPED: dict[str, Callable[[dict[str, torch.Tensor]], object]] = {
    "plain": lambda w: w,
    "under model": lambda w: {"model": w, "epoch": 3},
    "under state_dict": lambda w: {"state_dict": w},
    "under model_state_dict": lambda w: {"model_state_dict": w, "optimizer": {"lr": 0.1}},
    "two deep": lambda w: {"checkpoint": 1, "model": {"state_dict": w}},
    "DistributedDataParallel": lambda w: {f"module.{n}": t for n, t in w.items()},
    "compiled": lambda w: {f"_orig_mod.{n}": t for n, t in w.items()},
    "compiled in parallel": lambda w: {"model": {f"module._orig_mod.{n}": t for n, t in w.items()}},
    "an attribute": lambda w: {f"model.{n}": t for n, t in w.items()},
    "an attribute of another name": lambda w: {f"my.translator.{n}": t for n, t in w.items()},
}


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        *(("blog", wrap) for wrap in WRAPPED.values()),
        *(
            (name, WRAPPED[wrap])
            for name in ("annotated", STOCK)
            for wrap in ("two deep", "an attribute of another name")
        ),
    ],
)
def test_a_state_dict_is_found_in_what_it_is_wrapped_in(
    name: str, wrap: Callable[[dict[str, torch.Tensor]], object], tmp_path: Path
) -> None:
    form = FORMS[name]
    weights = form.module().state_dict()
    plain = imported(weights, tmp_path / "plain.pt", form.facts).checkpoint.weights
    found = imported(wrap(weights), tmp_path / "wrapped.pt", form.facts)
    assert found.format == form.name
    assert found.checkpoint.weights.keys() == plain.keys()
    assert all(torch.equal(found.checkpoint.weights[n], w) for n, w in plain.items())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("name", ["annotated", "blog", "torch, sequence first, pre-norm, gelu, 2+2"])
def test_half_precision_becomes_float32_and_its_positions_stay_sinusoidal(
    name: str, dtype: torch.dtype, tolerance: float, tmp_path: Path
) -> None:
    form = FORMS[name]
    module = form.module()
    rounded = {n: t.to(dtype) for n, t in module.state_dict().items()}
    found = imported(rounded, tmp_path / "half.pt", form.facts).checkpoint
    assert {w.dtype for w in found.weights.values()} == {torch.float32}
    assert found.config.positions == "sinusoidal"
    for n, t in module.named_parameters():
        t.data = rounded[n].float()
    source, target = batch(SIZES[0], (5, 5)), batch(SIZES[1], (4, 4))
    got, wanted = found.build_model()(source, target), form.logits(module, source, target)
    torch.testing.assert_close(got.log_softmax(-1), wanted.log_softmax(-1), atol=1e-5, rtol=0)


def test_a_table_of_other_positions_is_kept_as_it_is(tmp_path: Path) -> None:
    """Sines in the first half and cosines in the second, as other toolkits have them."""
    form = FORMS["blog"]
    module = form.module()
    pe = module.get_buffer("positional_encoding.pe")
    pe[:] = torch.cat([pe[..., 0::2], pe[..., 1::2]], dim=-1)
    found = imported(module.state_dict(), tmp_path / "m.pt", form.facts).checkpoint
    assert found.config.positions == "learned"
    assert not is_sinusoidal(found.weights["source_embedding.position_table"])
    source, target = batch(SIZES[0], LENGTHS), batch(SIZES[1], (4, 4, 4))
    torch.testing.assert_close(
        found.build_model()(source, target), form.logits(module, source, target), atol=1e-5, rtol=0
    )


def test_shorter_positions_than_in_the_file_may_be_asked_for(tmp_path: Path) -> None:
    form = FORMS["torch, batch first, post-norm, relu, 2+2"]
    weights = form.module().state_dict()
    found = imported(weights, tmp_path / "m.pt", {**form.facts, "max_positions": 16}).checkpoint
    assert found.weights["target_embedding.position_table"].shape == (16, 16)
    assert found.build_model().config.max_positions == 16


def test_layer_norm_in_the_annotated_class_is_recognised_by_its_names(tmp_path: Path) -> None:
    form = FORMS["annotated"]
    weights = form.module().state_dict()
    renamed = {n.replace(".a_2", ".weight").replace(".b_2", ".bias"): t for n, t in weights.items()}
    found = imported(renamed, tmp_path / "m.pt", form.facts).checkpoint
    assert (found.config.norm, found.config.norm_eps) == ("layer_norm", 1e-5)
    assert torch.equal(found.weights["encoder_norm.bias"], weights["encoder.norm.b_2"])


def test_one_table_for_all_three_is_seen_as_tied(tmp_path: Path) -> None:
    from tests.checkpoints.tutorial_classes import AnnotatedEncoderDecoder, with_random_weights

    module = AnnotatedEncoderDecoder(13, 13)
    module.src_embed[0].lut.weight = module.tgt_embed[0].lut.weight = module.generator.proj.weight
    weights = with_random_weights(module).state_dict()
    found = imported(weights, tmp_path / "m.pt", FORMS["annotated"].facts).checkpoint
    assert (found.config.share_embeddings, found.config.tie_output) == (True, True)
    model = found.build_model()
    assert model.output.weight is model.source_embedding.tokens.weight
