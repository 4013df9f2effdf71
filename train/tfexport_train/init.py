"""An untrained checkpoint, so that size and speed of a shape can be tried before it is trained."""

from __future__ import annotations

import torch

from tfexport_train.checkpoint import Checkpoint, TextSide
from tfexport_train.corpus import load_corpus
from tfexport_train.model import EncoderDecoder
from tfexport_train.settings import DataSettings, TrainSettings
from tfexport_train.tokenization import UNK_ID, train_tokenizers


def initialise(settings: TrainSettings) -> Checkpoint:
    """The model of the settings with the weights that training would begin with.

    The tokenizers are trained on the text where the settings name one that is there. Without it, each side gets a plain
    list of made-up words `<pad> <s> </s> <unk> t4 t5 ...` of the wanted size: good for measuring, not for text.
    Raises ConfigError or DataError.
    """
    if settings.data is not None and _is_there(settings.data):
        source, target = train_tokenizers(load_corpus(settings.data).train, settings.tokenizer)
    else:
        source, target = _made_up(settings)
    sizes = source.tokenizer(UNK_ID).size, target.tokenizer(UNK_ID).size
    torch.manual_seed(settings.training.seed)
    model = EncoderDecoder(settings.model.config(*sizes))
    return Checkpoint(model.config, model.state_dict(), source, target, settings.generation)


def _is_there(data: DataSettings) -> bool:
    return data.dates is not None or all(file.exists() for file in (*data.train, *data.valid, *data.test))


def _made_up(settings: TrainSettings) -> tuple[TextSide, TextSide]:
    tokenizer = settings.tokenizer
    return word_list(tokenizer.vocab_size), word_list(tokenizer.target_vocab_size or tokenizer.vocab_size)


def word_list(size: int) -> TextSide:
    """A vocabulary of `size` made-up words behind the four special tokens."""
    tokens = ["<pad>", "<s>", "</s>", "<unk>", *(f"t{i}" for i in range(4, size))]
    return TextSide("words", "\n".join(tokens).encode())
