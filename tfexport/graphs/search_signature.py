"""What goes in and out of the graph of a whole search.

Letters: B sentences, K beams, S source length, T steps of the search.
"""

from __future__ import annotations

from dataclasses import replace

from tfexport.graphs.further_outputs import FurtherOutputs
from tfexport.graphs.signature import GraphSignature, TensorSignature
from tfexport_runtime.search_graph import OPTIONS
from tfexport_train.config import EncoderDecoderConfig

SIGNATURE = GraphSignature(
    (
        TensorSignature("input_ids", "int64", ("batch", "source")),
        TensorSignature("attention_mask", "int32", ("batch", "source")),  # 1 on tokens; a row of zeros: an empty text
        TensorSignature("beam_size", "int64", (1,)),
        TensorSignature("max_length", "int64", ("limits",)),  # one for all sentences, or one for each
        TensorSignature("options", "float32", (len(OPTIONS),)),  # need not be given
    ),
    (
        TensorSignature("sequences", "int64", ("batch", "beams", "target")),  # without eos; pad_id behind the end
        TensorSignature("lengths", "int64", ("batch", "beams")),  # tokens of each
        TensorSignature("scores", "float32", ("batch", "beams")),  # best first; -inf: there are no more hypotheses
        TensorSignature("token_scores", "float32", ("batch", "beams", "target")),  # of eos as well; 0 behind the end
        TensorSignature("finished", "bool", ("batch", "beams")),  # ended with eos; else cut at the limit
    ),
)


def search_signature(config: EncoderDecoderConfig, further: FurtherOutputs) -> GraphSignature:
    """With outputs on request: what the step that gave each token looked at, 0 behind the end; the encoder's states."""
    by_token = ("batch", "beams", "target")
    attention = [replace(t, shape=(*by_token, *t.shape[1:])) for t in further.of_decoder(config)]
    return SIGNATURE.with_outputs([*attention, *further.of_encoder(config)])
