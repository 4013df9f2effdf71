"""A comparison with the user's own class decides what a file leaves open, and nothing passes that differs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.checkpoints import tutorial_forms
from tests.checkpoints.tutorial_forms import FORMS, imported
from tfexport_train.errors import CheckpointError

FACTORIES = tutorial_forms.__name__  # a module that can be imported by its name, as a user's own


@pytest.mark.parametrize(
    ("name", "open_facts"),
    [
        ("annotated", ["num_heads"]),
        ("blog", ["num_heads"]),
        ("torch, sequence first, pre-norm, gelu, 2+2", ["norm_position", "activation", "scale_embedding"]),
        ("torch, batch first, post-norm, relu, 2+2", ["norm_position", "activation", "num_heads"]),
    ],
)
def test_open_facts_are_decided_and_told(name: str, open_facts: list[str], tmp_path: Path) -> None:
    form = FORMS[name]
    facts = {n: v for n, v in form.facts.items() if n not in open_facts}
    weights = form.module().state_dict()
    found = imported(weights, tmp_path / "m.pt", facts, reference=f"{FACTORIES}:{form.reference}")
    assert {n: getattr(found.checkpoint.config, n) for n in open_facts} == {n: form.facts[n] for n in open_facts}
    (note,) = [note for note in found.notes if "logits differ" in note]
    assert [n for n in open_facts if f"{n} {form.facts[n]}" not in note] == []


def test_form_that_the_published_class_does_not_have_is_found(tmp_path: Path) -> None:
    """A pre-norm class whose author took GELU: without the reference, ReLU would be taken as published."""
    form = FORMS["blog"]
    found = imported(form.module().state_dict(), tmp_path / "m.pt", form.facts, reference=f"{__name__}:blog_with_gelu")
    assert found.checkpoint.config.activation == "gelu"


def test_given_fact_that_is_wrong_is_a_mismatch(tmp_path: Path) -> None:
    form = FORMS["annotated"]
    weights, facts = form.module().state_dict(), {**form.facts, "num_heads": 2}
    with pytest.raises(CheckpointError, match=r"computes something else than .* differs by") as error:
        imported(weights, tmp_path / "m.pt", facts, reference=f"{FACTORIES}:{form.reference}")
    assert error.value.exit_status == 3


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nonsense", "expected module:factory"),
        ("no_such_module:make", "no_such_module:make: ModuleNotFoundError"),
        (f"{FACTORIES}:no_such_name", "AttributeError"),
        (f"{__name__}:raises", "ZeroDivisionError: two"),
        (f"{__name__}:gives_a_list", "gave a list, expected a torch.nn.Module"),
        (f"{FACTORIES}:blog", "does not load into"),
        (f"{__name__}:wants_more", "parameter temperature is not known"),
        (f"{__name__}:gives_states", r"it gave \[2, 5, 16\], expected logits \[2, 5, 13\]"),
    ],
)
def test_reference_that_cannot_be_used_is_one_line(reference: str, words: str, tmp_path: Path) -> None:
    form = FORMS["annotated"]
    with pytest.raises(CheckpointError, match=words) as error:
        imported(form.module().state_dict(), tmp_path / "m.pt", form.facts, reference=reference)
    assert "\n" not in str(error.value)
    assert error.value.exit_status == 4


def blog_with_gelu() -> nn.Module:
    model = tutorial_forms.blog()
    for block in (*model.encoder_layers, *model.decoder_layers):  # type: ignore[union-attr]
        block.ffn.forward = lambda x, ffn=block.ffn: ffn.w_2(nn.functional.gelu(ffn.w_1(x)))
    return model


def raises() -> nn.Module:
    raise ZeroDivisionError("two\nlines")


def gives_a_list() -> list[int]:
    return [1]


class WantsMore(tutorial_forms.AnnotatedEncoderDecoder):
    def forward(self, src: Tensor, tgt: Tensor, temperature: float) -> Tensor:  # type: ignore[override]
        return torch.zeros(())


def wants_more() -> nn.Module:
    return WantsMore(*tutorial_forms.SIZES)


class GivesStates(tutorial_forms.AnnotatedEncoderDecoder):
    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:  # type: ignore[override]
        return self.tgt_embed(tgt)  # type: ignore[no-any-return]


def gives_states() -> nn.Module:
    model = GivesStates(*tutorial_forms.SIZES)
    model.generator.forward = lambda x: x  # type: ignore[method-assign, assignment]
    return model
