"""Makes data/hugging_face with the real transformers library: tiny random models and what they compute.

    python tests/checkpoints/make_hugging_face.py [CASE...]    # needs transformers 4 or 5, torch, sentencepiece

Each folder is one that `from_pretrained` loads: configuration, weights in 16 bits, tokenizer files. Beside them,
expected.json and expected.safetensors hold texts, their ids, logits, and the tokens of the library's own generation.
Of what version 5 writes, only those folders are kept that differ from version 4's in layout or meaning.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers as hf
from safetensors.torch import save_file

HERE = Path(__file__).parent / "data" / "hugging_face"
VERSION_5 = int(hf.__version__.partition(".")[0]) >= 5  # its folders have names of their own
TEXTS = ["tina isst reis", "es rast", "nina rennt in rans nest", "a"]
MADE_UP = 8  # ids of M2M100 that stand for nothing
LONGEST = 24  # new tokens
SIZES = {"d_model": 8, "max_position_embeddings": 40}
BART_SIZES = {
    **SIZES,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "init_std": 0.35,
}
LAYERS = (2, 2), (3, 1)  # every family has both
FLAN = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_model": 16, "d_kv": 12, "d_ff": 20}
GREEDY = {"num_beams": 1}
BEAM = {"num_beams": 4, "num_return_sequences": 4, "early_stopping": True}
T5_SIZES = {
    "d_model": 8,
    "d_kv": 6,
    "num_heads": 2,
    "d_ff": 12,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
}


@dataclass
class Case:
    name: str
    config: Callable[[int, int], Any]  # (vocabulary, its padding id) -> configuration
    model: Any
    tokenizer: Callable[[Path], Any] | None  # None: ids
    options: dict[str, str] = field(default_factory=dict)  # of the import
    generate: dict[str, Any] = field(default_factory=dict)
    save: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float16
    vocabulary: int = 0  # where there is no tokenizer


def pieces(seed: int, size: int, special: dict[str, int], model_type: str = "unigram") -> bytes:
    """A SentencePiece model of a made-up language."""
    words = ["reis", "isst", "rast", "es", "in", "rans", "nest", "tina", "nina", "rennt", "an", "sie", "na", "ist"]
    generator, file = random.Random(seed), io.BytesIO()
    lines = [" ".join(generator.choices(words, k=6)) for _ in range(300)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=file,
        vocab_size=size,
        model_type=model_type,
        normalization_rule_name="identity",
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **special,
    )
    return file.getvalue()


FAIRSEQ = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}
T5_IDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


def names(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]


def marian_tokenizer(folder: Path, separate: bool, codes: tuple[str, ...] = ()) -> Any:
    models = {side: pieces(seed, 24, T5_IDS) for side, seed in (("source", 1), ("target", 2))}
    for side, model in models.items():
        (folder / f"{side}.spm").write_bytes(model)
    lists = {side: names(model)[3:] for side, model in models.items()}

    def numbered(tokens: list[str]) -> dict[str, int]:
        ordered = sorted(set(tokens), key=lambda t: (len(t), t))  # not the order of the model
        return {token: i for i, token in enumerate(["</s>", "<unk>", *codes, *ordered, "<pad>"])}

    shared = numbered(lists["source"] + lists["target"])
    own = {side: numbered(tokens) for side, tokens in lists.items()}
    (folder / "vocab.json").write_text(json.dumps(own["source"] if separate else shared, ensure_ascii=False))
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(own["target"], ensure_ascii=False))
    return hf.MarianTokenizer(
        str(folder / "source.spm"),
        str(folder / "target.spm"),
        str(folder / "vocab.json"),
        target_vocab_file=str(folder / "target_vocab.json") if separate else None,
        separate_vocabs=separate,
    )


def fairseq_tokenizer(folder: Path, kind: Any, languages: tuple[str, str]) -> Any:
    model_type = "bpe" if kind is hf.NllbTokenizer else "unigram"
    codes = {"extra_special_tokens": [*languages, "eng_Latn", "spa_Latn", "ita_Latn", "nld_Latn", "ces_Latn"]}
    (folder / "sentencepiece.bpe.model").write_bytes(pieces(3, 30, FAIRSEQ, model_type))
    named = codes if VERSION_5 and model_type == "bpe" else {}  # it takes them from NLLB's tokenizer.json
    return kind.from_pretrained(folder, src_lang=languages[0], tgt_lang=languages[1], **named)


def m2m_tokenizer(folder: Path) -> Any:
    model = pieces(4, 30, {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3})
    (folder / "made.model").write_bytes(model)
    tokens = sorted(names(model)[4:], reverse=True)
    vocabulary = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *tokens])}
    (folder / "made.json").write_text(json.dumps(vocabulary, ensure_ascii=False))
    return hf.M2M100Tokenizer(str(folder / "made.json"), str(folder / "made.model"), src_lang="de", tgt_lang="fr")


def piece_tokenizer(folder: Path, kind: Any, special: dict[str, int], **settings: Any) -> Any:
    (folder / "spiece.model").write_bytes(pieces(5, 30, special))
    return kind.from_pretrained(folder, **settings)


def bart_config(kind: Any, layers: tuple[int, int], **settings: Any) -> Callable[[int, int], Any]:
    def make(size: int, pad: int) -> Any:
        return kind(
            vocab_size=size,
            encoder_layers=layers[0],
            decoder_layers=layers[1],
            **{**BART_SIZES, "pad_token_id": pad, **settings},
        )

    return make


def t5_config(kind: Any, layers: tuple[int, int], **settings: Any) -> Callable[[int, int], Any]:
    def make(size: int, pad: int) -> Any:
        return kind(
            vocab_size=size,
            num_layers=layers[0],
            num_decoder_layers=layers[1],
            decoder_start_token_id=0,
            **{**T5_SIZES, **settings},
        )

    return make


def marian_config(layers: tuple[int, int], **settings: Any) -> Callable[[int, int], Any]:
    def make(size: int, pad: int) -> Any:
        first = {"decoder_start_token_id": pad, "eos_token_id": 0, "bad_words_ids": [[pad]], "scale_embedding": True}
        return bart_config(hf.MarianConfig, layers, **{**first, **settings})(size, pad)

    return make


def cases() -> list[Case]:
    bart, mbart, m2m = (
        hf.BartForConditionalGeneration,
        hf.MBartForConditionalGeneration,
        hf.M2M100ForConditionalGeneration,
    )
    start = {"decoder_start_token_id": 2, "eos_token_id": 2}
    german_french = {"source_language": "de_DE", "target_language": "fr_XX"}
    return [
        Case(
            "marian-2-2",
            marian_config((2, 2), activation_function="swish", static_position_embeddings=True),
            hf.MarianMTModel,
            lambda f: marian_tokenizer(f, separate=False),
            generate={"length_penalty": 0.8},
        ),
        Case(
            "marian-3-1",
            marian_config((3, 1), share_encoder_decoder_embeddings=False, activation_function="relu"),
            hf.MarianMTModel,
            lambda f: marian_tokenizer(f, separate=True),
        ),
        Case(
            "marian-codes-2-2",
            marian_config((2, 2), activation_function="gelu"),
            hf.MarianMTModel,
            lambda f: marian_tokenizer(f, separate=False, codes=(">>deu<<", ">>fra<<", ">>cmn_Hans<<")),
            options={"target_language": "fra"},
        ),
        Case(
            "bart-2-2",
            bart_config(hf.BartConfig, (2, 2), forced_bos_token_id=0),
            bart,
            None,
            vocabulary=40,
        ),
        Case(
            "bart-3-1",
            bart_config(hf.BartConfig, (3, 1), activation_function="gelu_new", tie_word_embeddings=False),
            bart,
            None,
            vocabulary=40,
            save={"safe_serialization": False},
        ),
        *(
            Case(
                f"mbart-{layers[0]}-{layers[1]}",
                bart_config(hf.MBartConfig, layers, scale_embedding=True),
                mbart,
                lambda f: fairseq_tokenizer(f, hf.MBartTokenizer, ("de_DE", "fr_XX")),
                options=german_french,
            )
            for layers in LAYERS
        ),
        Case(
            "mbart50-2-2",
            bart_config(hf.MBartConfig, (2, 2), **start),
            mbart,
            lambda f: fairseq_tokenizer(f, hf.MBart50Tokenizer, ("de_DE", "fr_XX")),
            options=german_french,
        ),
        Case(
            "mbart50-3-1",
            bart_config(hf.MBartConfig, (3, 1), activation_function="relu", **start),
            mbart,
            lambda f: fairseq_tokenizer(f, hf.MBart50Tokenizer, ("de_DE", "fr_XX")),
            options=german_french,
            save={"max_shard_size": "8KB"},
            dtype=torch.bfloat16,
        ),
        *(
            Case(
                f"m2m100-{layers[0]}-{layers[1]}",
                bart_config(hf.M2M100Config, layers, **start),
                m2m,
                m2m_tokenizer,
                options={"source_language": "de", "target_language": "fr"},
            )
            for layers in LAYERS
        ),
        *(
            Case(
                f"nllb-{layers[0]}-{layers[1]}",
                bart_config(hf.M2M100Config, layers, **start),
                m2m,
                lambda f: fairseq_tokenizer(f, hf.NllbTokenizer, ("deu_Latn", "fra_Latn")),
                options={"source_language": "deu_Latn", "target_language": "fra_Latn"},
            )
            for layers in LAYERS
        ),
        Case(
            "pegasus-2-2",
            bart_config(hf.PegasusConfig, (2, 2), scale_embedding=True, activation_function="relu"),
            hf.PegasusForConditionalGeneration,
            lambda f: piece_tokenizer(f, hf.PegasusTokenizer, T5_IDS),
            generate={"length_penalty": 0.6},
        ),
        Case(
            "pegasus-3-1",
            bart_config(hf.PegasusConfig, (3, 1)),
            hf.PegasusForConditionalGeneration,
            lambda f: piece_tokenizer(f, hf.PegasusTokenizer, T5_IDS),
        ),
        *(
            Case(
                f"{name}-{layers[0]}-{layers[1]}",
                t5_config(kind, layers, **settings),
                model,
                lambda f, extra=extra: piece_tokenizer(f, hf.T5Tokenizer, T5_IDS, extra_ids=extra),
            )
            for layers in LAYERS
            for name, kind, model, extra, settings in (
                ("t5", hf.T5Config, hf.T5ForConditionalGeneration, 4, {"d_kv": 4}),
                ("flan-t5", hf.T5Config, hf.T5ForConditionalGeneration, 4, FLAN),
                ("mt5", hf.MT5Config, hf.MT5ForConditionalGeneration, 0, {}),
            )
        ),
    ]


def main() -> None:
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    wanted = sys.argv[1:]
    for case in [case for case in cases() if not wanted or case.name in wanted]:
        folder = HERE / (f"{case.name}-v5" if VERSION_5 else case.name)
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "made").mkdir(parents=True)
        tokenizer = case.tokenizer(folder / "made") if case.tokenizer else None
        for seed in range(400):
            if expected := attempt(case, folder, tokenizer, seed):
                break
        else:
            raise SystemExit(f"{case.name}: no seed gives a search that ends")
        shutil.rmtree(folder / "made")
        write(expected, folder)
        size = sum(f.stat().st_size for f in folder.iterdir())
        sys.stdout.write(f"{case.name}: seed {seed}, {size / 1000:.0f} kB, {expected['greedy']}\n")
        sys.stdout.flush()


def attempt(case: Case, folder: Path, tokenizer: Any, seed: int) -> dict[str, Any] | None:
    """A model that ends its translations in time, of several words; None if this seed gives another."""
    torch.manual_seed(seed)
    size = vocabulary_size(tokenizer) if tokenizer else case.vocabulary
    config = case.config(size, tokenizer.pad_token_id if tokenizer else 1)
    if tokenizer and getattr(tokenizer, "separate_vocabs", False):
        config.decoder_vocab_size = len(tokenizer.target_encoder)
    model = randomised(case.model(config).eval())
    code = ">>fra<< " if case.name.startswith("marian-codes") else ""  # of the target, written before the text
    texts = [code + text for text in TEXTS]
    source = tokenizer(texts, padding=True, return_tensors="pt") if tokenizer else random_ids(size)
    prefix = prefix_ids(case, tokenizer, model)
    settings = generation_settings(case, tokenizer, model)
    encourage_end(model, source, settings)
    round_weights(model, case.dtype)
    with torch.inference_mode():
        greedy = model.generate(**source, **GREEDY, **settings)
        beams = model.generate(**source, **BEAM, **settings, **case.generate)
    eos = model.config.eos_token_id
    results = {name: stripped(ids, 1 + len(prefix), eos) for name, ids in (("greedy", greedy), ("beam", beams))}
    ends = all(eos in row[1 + len(prefix) :] for row in beams.tolist())
    alike = len({tuple(r) for r in results["beam"][::4]}) < 3 or max(len(set(r)) for r in results["greedy"]) < 5
    again = any(token in row for token in prefix for row in results["beam"])  # counted there, not here
    if not ends or alike or again or [] in results["beam"][::4]:
        return None
    with torch.inference_mode():
        logits = model(**source, decoder_input_ids=greedy[:, :5]).logits
    model.generation_config.num_beams = 4
    model.generation_config.early_stopping = True
    for name, value in case.generate.items():
        setattr(model.generation_config, name, value)
    save(case, model, tokenizer, folder)
    return {
        "transformers": hf.__version__,
        "options": case.options,
        "texts": TEXTS if tokenizer else None,
        "source_ids": [row[mask.bool()].tolist() for row, mask in zip(*source.values(), strict=True)],
        "decoder_ids": greedy[:, :5].tolist(),
        "prefix_ids": prefix,
        "generate": settings,
        "generate_greedy": GREEDY,
        "generate_beam": {**BEAM, **case.generate},
        "greedy": results["greedy"],
        "beam": [results["beam"][i : i + 4] for i in range(0, len(results["beam"]), 4)],
        "logits": logits,
    }


def vocabulary_size(tokenizer: Any) -> int:
    """M2M100 has its languages, and tokens without a meaning, behind those that the tokenizer counts."""
    languages = getattr(tokenizer, "lang_token_to_id", None) if isinstance(tokenizer, hf.M2M100Tokenizer) else None
    return max(languages.values()) + 1 + MADE_UP if languages else len(tokenizer)


def randomised(model: Any) -> Any:
    """Weights of a size at which all parts have a say."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.normal_(1.0, 0.2)
            elif "embed_positions" not in name or model.config.model_type in ("bart", "mbart"):
                parameter.normal_(0.0, 0.4)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(0.0, 0.5)
    return model


def encourage_end(model: Any, source: dict[str, torch.Tensor], settings: dict[str, Any]) -> None:
    """Raises the logit of the end token, so that random weights do end their sentences."""
    by = 5.0 if "t5" in model.config.model_type else 3.0
    states: list[torch.Tensor] = []
    hook = model.lm_head.register_forward_hook(lambda module, inputs, output: states.append(inputs[0].flatten(0, 1)))
    with torch.no_grad():
        model.generate(**source, num_beams=1, **settings)
        mean = torch.cat(states).mean(0)
        model.lm_head.weight[model.config.eos_token_id] += by * mean / mean.square().sum()
    hook.remove()


def round_weights(model: Any, dtype: torch.dtype) -> None:
    """To what the file will hold. Computed positions are in no file."""
    computed = model.config.model_type in ("marian", "pegasus")
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if not (computed and "embed_positions" in name) and not name.endswith("embed_positions.weights"):
                tensor.copy_(tensor.to(dtype))


def random_ids(size: int) -> dict[str, torch.Tensor]:
    lengths = [7, 3, 12, 4]
    ids = torch.full((len(lengths), max(lengths)), 1)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.randint(4, size, (length,))
        row[0], row[length - 1] = 0, 2
    return {"input_ids": ids, "attention_mask": (ids != 1).long()}


def prefix_ids(case: Case, tokenizer: Any, model: Any) -> list[int]:
    """What every output begins with, behind the start token."""
    if case.name.startswith("mbart-"):
        return []
    target = case.options.get("target_language")
    if target and model.config.model_type != "marian":
        written = f"__{target}__" if case.name.startswith("m2m100") else target
        return [tokenizer.convert_tokens_to_ids(written)]
    forced = model.generation_config.forced_bos_token_id
    return [] if forced is None else [forced]


def generation_settings(case: Case, tokenizer: Any, model: Any) -> dict[str, Any]:
    """Without the forced end at the limit, and without tokens that are no text, which are never generated here."""
    model.generation_config.forced_eos_token_id = None
    settings: dict[str, Any] = {"max_new_tokens": LONGEST, "do_sample": False}
    if case.name.startswith("mbart-"):
        settings["decoder_start_token_id"] = tokenizer.convert_tokens_to_ids(case.options["target_language"])
    elif prefix := prefix_ids(case, tokenizer, model):
        settings["forced_bos_token_id"] = prefix[0]
    start = settings.get("decoder_start_token_id", model.generation_config.decoder_start_token_id)
    silent = {model.config.pad_token_id, start} - {model.config.eos_token_id}
    if isinstance(tokenizer, hf.M2M100Tokenizer):
        silent |= set(range(vocabulary_size(tokenizer) - MADE_UP, vocabulary_size(tokenizer)))
    # The runtimes renormalise after rules on tokens; so does Hugging Face when it is asked to.
    return {**settings, "suppress_tokens": sorted(silent), "no_repeat_ngram_size": 2, "renormalize_logits": True}


def stripped(ids: torch.Tensor, start: int, eos: int) -> list[list[int]]:
    rows = [row[start:] for row in ids.tolist()]
    return [row[: row.index(eos)] if eos in row else row for row in rows]


def save(case: Case, model: Any, tokenizer: Any, folder: Path) -> None:
    if tokenizer:
        tokenizer.save_pretrained(folder)
    if case.name.startswith("marian-codes"):
        model.generation_config.length_penalty = 1.0
    model.to(case.dtype).save_pretrained(folder, **case.save)
    for file in folder.glob("*.json"):  # without what makes it wide
        file.write_text(json.dumps(json.loads(file.read_text()), ensure_ascii=False, separators=(",", ":")))


def write(expected: dict[str, Any], folder: Path) -> None:
    save_file({"logits": expected.pop("logits").float().contiguous()}, folder / "expected.safetensors")
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in expected.items()]
    (folder / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
