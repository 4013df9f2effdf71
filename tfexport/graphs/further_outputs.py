"""Outputs on request, beside those that a search needs: what a token looks at, and the encoder's last states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfexport.graphs.signature import FixedShape, TensorSignature
from tfexport.passes.attention_output import AttentionChoice, attention_signatures
from tfexport.passes.encoder_state import encoder_state_signature
from tfexport_train.config import EncoderDecoderConfig

if TYPE_CHECKING:
    from tfexport.export import ExportOptions


@dataclass(frozen=True)
class FurtherOutputs:
    """They stand behind the others, in every format."""

    attention: AttentionChoice | None = None  # of the decoder
    encoder_state: bool = False
    shape: FixedShape | None = None  # numbers for axes that vary

    @classmethod
    def of(cls, options: ExportOptions, config: EncoderDecoderConfig) -> FurtherOutputs:
        """Raises ExportError for layers and heads that the model does not have."""
        choice = AttentionChoice(options.attention_layers, options.attention_heads)
        choice.check(config, options.attention)
        return cls(choice if options.attention else None, options.encoder_state, options.static)

    def of_encoder(self, config: EncoderDecoderConfig) -> list[TensorSignature]:
        return [encoder_state_signature(config, self.shape)] if self.encoder_state else []

    def of_decoder(self, config: EncoderDecoderConfig) -> list[TensorSignature]:
        return attention_signatures(config, self.attention, self.shape) if self.attention is not None else []
