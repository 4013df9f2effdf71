"""Translation with the PyTorch model, and the metrics of what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tfexport_runtime.options import TranslationOptions
from tfexport_runtime.step_model import Target
from tfexport_runtime.tokenizer import within_vocabulary
from tfexport_runtime.translation import Translation, Vocabularies, translate
from tfexport_train.checkpoint import Checkpoint, TextSide
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.decoding import TorchStepModel, evaluating
from tfexport_train.model import EncoderDecoder


@dataclass(frozen=True)
class TorchTranslator:
    """Text in, text out: the runtime's own path, with the PyTorch module in the place of the bundle."""

    model: EncoderDecoder
    source: TextSide
    target: TextSide

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> TorchTranslator:
        return cls(checkpoint.build_model(), checkpoint.source, checkpoint.target)

    @cached_property
    def vocabularies(self) -> Vocabularies:
        config, side, unk_id = self.model.config, self.source, self.model.config.unk_id
        return Vocabularies(
            within_vocabulary(side.tokenizer(unk_id), config.source_vocab_size, unk_id),
            within_vocabulary(self.target.tokenizer(unk_id), config.target_vocab_size, unk_id),
            (config.start_id,) * side.add_bos + side.prefix_ids,
            (config.eos_id,) * side.add_eos + side.suffix_ids,
            config.max_positions,
        )

    def translate(
        self, texts: Sequence[str], options: TranslationOptions, prefixes: Sequence[str] | None = None
    ) -> list[Translation]:
        """As the runtime's Translator. Raises OptionError, and InputError for a text that is too long."""
        target = search_target(self.model.config, self.vocabularies.target.size, self.target.prefix_ids)
        with evaluating(self.model):
            return translate(TorchStepModel(self.model), self.vocabularies, target, texts, options, prefixes)


def translate_with_model(checkpoint: Checkpoint, texts: Sequence[str], options: TranslationOptions) -> list[str]:
    """The best translation of each text by the checkpoint's model in PyTorch."""
    return [t.text for t in TorchTranslator.from_checkpoint(checkpoint).translate(texts, options)]


def search_target(config: EncoderDecoderConfig, tokens: int, prefix_ids: tuple[int, ...] = ()) -> Target:
    """What the search must know of this model; `tokens` is the size of the target tokenizer.

    Never generated: padding, the start token, and the ids of a padded vocabulary that stand for nothing.
    """
    nothing = range(tokens, config.target_vocab_size)
    never = tuple(sorted({config.pad_id, config.start_id, *nothing} - {config.eos_id}))
    return Target(config.target_vocab_size, config.start_id, config.eos_id, never, config.max_positions, prefix_ids)


def greedy(options: TranslationOptions) -> TranslationOptions:
    """The same limits and rules, without beams."""
    return replace(options, beam_size=1, n_best=1, sampling=False)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, sacreBLEU's defaults: 13a, cased, 0 to 100."""
    import sacrebleu

    return float(sacrebleu.corpus_bleu(list(hypotheses), [list(references)]).score)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus chrF2, 0 to 100."""
    import sacrebleu

    return float(sacrebleu.corpus_chrf(list(hypotheses), [list(references)]).score)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Per cent of texts that equal their reference, 0 to 100."""
    pairs = list(zip(hypotheses, references, strict=True))
    return 100.0 * sum(h == r for h, r in pairs) / max(len(pairs), 1)


METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "bleu": bleu,
    "chrf": chrf,
    "exact_match": exact_match,
}
