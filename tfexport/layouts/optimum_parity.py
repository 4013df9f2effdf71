"""Optimum's graphs against the PyTorch module, called as its libraries call them.

Letters: B rows, T tokens, S source length, V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import torch

from tfexport.parity import ParityReport, Worst
from tfexport.samples import random_sources
from tfexport_train.model import EncoderDecoder

Arrays = dict[str, npt.NDArray[Any]]

TOLERANCE = 1e-4  # on hidden states and logits
_FIRST_TOKENS = 3  # of the first call; later ones take one each


def verify_optimum(model: EncoderDecoder, encoder_file: Path, decoder_file: Path) -> ParityReport:
    """A ragged batch: the encoder, a first step of several tokens, and single steps behind it."""
    config = model.config
    sources = random_sources(config, 3, min(12, config.max_positions), seed=2)
    width, steps = max(map(len, sources)), min(8, config.max_positions)
    ids = torch.tensor([[*s, *[config.pad_id] * (width - len(s))] for s in sources])
    mask = torch.tensor([[int(i < len(s)) for i in range(width)] for s in sources])
    tokens = torch.tensor([random_sources(config, 1, steps, seed)[0] for seed in range(len(sources))])
    with torch.inference_mode():
        memory = model.encode(ids, mask.bool())
        logits = model.decode(memory, mask.bool(), tokens).numpy()
    encoder, decoder, real = Worst(), Worst(), mask.bool().numpy()
    hidden = _Session(encoder_file).run({"input_ids": ids.numpy(), "attention_mask": mask.numpy()})["last_hidden_state"]
    encoder.see(float(np.abs(hidden[real] - memory.numpy()[real]).max()), encoder_file.name, int(real.sum()))
    for at, found in _steps(_Session(decoder_file), hidden, mask.numpy(), tokens.numpy()):
        where = f"{decoder_file.name}, positions {at.start} to {at.stop - 1}"
        decoder.see(float(np.abs(found - logits[:, at]).max()), where, found.shape[0] * found.shape[1])
    return ParityReport((encoder.row("hidden states", TOLERANCE), decoder.row("logits", TOLERANCE)))


class _Session:
    def __init__(self, file: Path) -> None:
        self._session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        self._outputs = [output.name for output in self._session.get_outputs()]
        self.past = {value.name: value.shape for value in self._session.get_inputs() if "past" in value.name}

    def run(self, inputs: Arrays) -> Arrays:
        return dict(zip(self._outputs, self._session.run(self._outputs, inputs), strict=True))


def _steps(
    session: _Session, hidden: npt.NDArray[Any], mask: npt.NDArray[Any], tokens: npt.NDArray[Any]
) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
    """The logits [B, T, V] of each call, and which positions they are of."""
    empty = {
        name: np.zeros((len(tokens), heads, 0, size), np.float32) for name, (_, heads, _, size) in session.past.items()
    }
    past, start = empty, 0
    while start < tokens.shape[1]:
        at = slice(start, start + (1 if start else _FIRST_TOKENS))
        outputs = session.run(
            {
                "encoder_attention_mask": mask,
                "input_ids": tokens[:, at],
                "encoder_hidden_states": hidden,
                "use_cache_branch": np.array([start > 0]),
                **past,
            }
        )
        yield at, outputs["logits"]
        past = {name: outputs[name.replace("past_key_values", "present")] for name in past}
        start = at.stop
