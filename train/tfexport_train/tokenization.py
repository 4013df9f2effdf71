"""SentencePiece models, trained on the training text within the run."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

import sentencepiece

from tfexport_train.checkpoint import TextSide
from tfexport_train.corpus import TextPair
from tfexport_train.errors import ConfigError
from tfexport_train.settings import TokenizerSettings

PAD_ID, START_ID, EOS_ID, UNK_ID = 0, 1, 2, 3


def train_tokenizers(pairs: Sequence[TextPair], settings: TokenizerSettings) -> tuple[TextSide, TextSide]:
    """The source's and the target's; one and the same where they are shared. Raises ConfigError."""
    sources, targets = [s for s, _ in pairs], [t for _, t in pairs]
    if settings.shared:
        shared = _trained([*sources, *targets], settings.model_type, settings.vocab_size, settings)
        return shared, shared
    target_type = settings.target_model_type or settings.model_type
    target_size = settings.target_vocab_size or settings.vocab_size
    return (
        _trained(sources, settings.model_type, settings.vocab_size, settings),
        _trained(targets, target_type, target_size, settings),
    )


def _trained(texts: Iterable[str], model_type: str, vocab_size: int, settings: TokenizerSettings) -> TextSide:
    model = io.BytesIO()
    subwords = model_type in ("bpe", "unigram")
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type=model_type,
            vocab_size=vocab_size,
            character_coverage=settings.character_coverage,
            byte_fallback=settings.byte_fallback and subwords,
            # char and word: as many pieces as the text gives, up to vocab_size
            hard_vocab_limit=subwords,
            normalization_rule_name="nmt_nfkc",
            input_sentence_size=settings.max_sentences,
            shuffle_input_sentence=True,
            pad_id=PAD_ID,
            bos_id=START_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            num_threads=1,  # the result of some model types depends on it
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise ConfigError(_explained(error, model_type, vocab_size)) from error
    return TextSide("sentencepiece", model.getvalue())


def _explained(error: Exception, model_type: str, vocab_size: int) -> str:
    message = " ".join(str(error).split())
    limit = re.search(r"value <= (\d+)", message)
    if limit:
        return (
            f"tokenizer.vocab_size {vocab_size} is more than the text gives a {model_type} model; "
            f"the largest possible is {limit.group(1)}"
        )
    if "smaller than required_chars" in message or "required_chars" in message:
        return (
            f"tokenizer.vocab_size {vocab_size} is too small to hold every character of the text; "
            "raise it, or lower tokenizer.character_coverage"
        )
    return f"SentencePiece cannot train a {model_type} model of {vocab_size} pieces on this text: {message}"
