"""Writes data/toolkits/: tiny models with random weights by fairseq, OpenNMT-py and JoeyNMT, and what they compute.

`python -m tests.checkpoints.make_toolkits NAME` from the root of the repository, where NAME is fairseq, opennmt,
joeynmt or marian, in an environment with that library (fairseq 0.12 wants its dataclass defaults wrapped in
default_factory on Python 3.11). Marian has no Python library: its files are written here from its own description of
names and settings, and what is expected of them comes from CTranslate2, which reads them with its own converter.

Tables of computed positions are cut to the first 40 rows. Hypotheses are greedy, by the library's own forward pass, and
those of the beam search of fairseq, OpenNMT-py and JoeyNMT.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

FOLDER = Path(__file__).parent / "data" / "toolkits"
WIDTH, INNER, HEADS, ROWS = 8, 12, 2, 40
END = {"fairseq": -0.4, "fairseq-cfg": 6.0}  # how much the end is favoured
WORDS = {"source": [f"s{i}" for i in range(20)], "target": [f"t{i}" for i in range(24)]}
LENGTHS = (1, 4, 7, 2, 5)


def texts(words: list[str]) -> list[str]:
    generator = np.random.default_rng(6)
    return [" ".join(words[i] for i in generator.integers(0, len(words), length)) for length in LENGTHS]


def randomise(model: nn.Module, seed: int) -> None:
    """Weights large enough for outputs that differ."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(
                    std=(3.0 if "embed" in name or "emb_luts" in name else 1.6) / parameter.shape[-1] ** 0.5
                )
            elif "norm" in name and name.endswith("weight"):
                parameter.normal_(1.0, 0.2)
            else:
                parameter.normal_(0.0, 0.3)


def greedy(
    logits: Callable[[Tensor, Tensor], Tensor], source: list[int], start: int, end: int, never: list[int]
) -> list[int]:
    """logits(source [1, S], target [1, T]) -> [V] of the next token."""
    target = [start]
    while len(target) < 13:
        scores = logits(torch.tensor([source]), torch.tensor([target])).clone()
        scores[never] = -torch.inf
        token = int(scores.argmax())
        if token == end:
            break
        target.append(token)
    return target[1:]


def write(folder: Path, values: dict[str, Any]) -> None:
    (folder / "expected.json").write_text(json.dumps(values) + "\n", encoding="utf-8")


def rounded(logits: Tensor) -> list[float]:
    return [round(float(x), 5) for x in logits]


def fresh(name: str) -> Path:
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


# fairseq


def fairseq() -> None:
    forms: dict[str, dict[str, Any]] = {
        "fairseq": {"share_all_embeddings": True},
        "fairseq-cfg": {
            "encoder_normalize_before": True,
            "decoder_normalize_before": True,
            "encoder_learned_pos": True,
            "decoder_learned_pos": True,
            "layernorm_embedding": True,
            "activation_fn": "gelu",
            "no_scale_embedding": True,
        },
    }
    for seed, (name, form) in enumerate(forms.items()):
        _fairseq(name, form, seed)


def _fairseq(name: str, form: dict[str, Any], seed: int) -> None:
    from fairseq.data import Dictionary
    from fairseq.models.transformer import TransformerModel, base_architecture
    from fairseq.version import __version__

    folder = fresh(name)
    dictionaries = {}
    for side, language in (("source", "de"), ("target", "en")):
        words = WORDS["target" if form.get("share_all_embeddings") else side]
        (folder / f"dict.{language}.txt").write_text("".join(f"{w} {99 - i}\n" for i, w in enumerate(words)))
        dictionaries[side] = Dictionary.load(str(folder / f"dict.{language}.txt"))
    sizes = {
        f"{stack}_{what}": value
        for stack, layers in (("encoder", 2), ("decoder", 1))
        for what, value in {
            "embed_dim": WIDTH,
            "ffn_embed_dim": INNER,
            "layers": layers,
            "attention_heads": HEADS,
        }.items()
    }
    args = argparse.Namespace(
        arch="transformer", task="translation", source_lang="de", target_lang="en",
        max_source_positions=ROWS, max_target_positions=ROWS, dropout=0.0, **sizes, **form,
    )  # fmt: skip
    base_architecture(args)
    task = argparse.Namespace(source_dictionary=dictionaries["source"], target_dictionary=dictionaries["target"])
    sources = texts(WORDS["target" if form.get("share_all_embeddings") else "source"])
    model = TransformerModel.build_model(args, task).eval()
    randomise(model, seed)
    with torch.no_grad():
        end = model.decoder.output_projection.weight[2]
        last = model.decoder.layer_norm or model.decoder.layers[-1].final_layer_norm
        last.bias += END[name] * end / end.norm()  # outputs end
        # Normed states have a mean of zero: so this row has the same small logit everywhere. It is padding, which
        # fairseq forbids without giving its probability to others.
        row = -12 / last.weight / (last.bias / last.weight).sum()
        model.encoder.embed_tokens.weight[1] = model.decoder.output_projection.weight[1] = row
    beams = {str(beam): [_generated(model, dictionaries, text, beam) for text in sources] for beam in (1, 4)}
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    content = {"args": args, "cfg": None, "model": state, "extra_state": {"best": np.float64(1.5)}}
    if name.endswith("cfg"):
        content |= {"args": None, "cfg": {"model": args, "task": {"source_lang": "de", "target_lang": "en"}}}
    torch.save(content, folder / "checkpoint_best.pt")
    ids = dictionaries["source"].encode_line(sources[2], add_if_not_exist=False, append_eos=True).long()[None]
    target = torch.tensor([[2, 9, 5, 14]])
    with torch.no_grad():
        logits = model(ids, torch.tensor([ids.shape[1]]), target)[0][0, -1]
    write(
        folder,
        {
            "library": f"fairseq {__version__}",
            "sources": sources,
            "target": target[0].tolist(),
            "logits_of": 2,
            "logits": rounded(logits),
            "beams": beams,
        },
    )


def _generated(model: Any, dictionaries: dict[str, Any], text: str, beam: int) -> list[dict[str, Any]]:
    """By fairseq's own search. Its min_len takes the end's probability away and shares it with nobody; so it is off."""
    from fairseq.sequence_generator import SequenceGenerator

    search = SequenceGenerator([model], dictionaries["target"], beam_size=beam, max_len_b=20, min_len=0)
    ids = dictionaries["source"].encode_line(text, add_if_not_exist=False, append_eos=True).long()[None]
    sample = {"net_input": {"src_tokens": ids, "src_lengths": torch.tensor([ids.shape[1]])}}
    return [
        {"text": dictionaries["target"].string(h["tokens"]), "score": round(float(h["score"]), 5)}
        for h in search.generate([model], sample)[0]
    ]


# OpenNMT-py


def opennmt() -> None:
    for seed, (name, form) in enumerate(
        {
            "opennmt": {"add_qkvbias": True},
            "opennmt-shared": {
                "share": True,
                "pos_ffn_activation_fn": "silu",
                "layer_norm": "rms",
                "add_qkvbias": False,
                "position_encoding_type": "SinusoidalConcat",
            },
        }.items()
    ):
        _opennmt(name, dict(form), seed)


def _opennmt(name: str, form: dict[str, Any], seed: int) -> None:
    import onmt
    import onmt.opts
    from onmt.inputters.inputter import dict_to_vocabs
    from onmt.model_builder import build_task_specific_model
    from onmt.utils.parse import ArgumentParser

    folder, shared = fresh(name), form.pop("share", False)
    special = ["<unk>", "<blank>", "<s>", "</s>"]
    source, target = (special + WORDS["target" if shared else side] for side in ("source", "target"))
    parser = ArgumentParser()
    onmt.opts.config_opts(parser)
    onmt.opts.model_opts(parser)
    options = ["--encoder_type", "transformer", "--decoder_type", "transformer", "--position_encoding"]
    args, _ = parser.parse_known_args([*options, "--enc_layers", "2", "--dec_layers", "1", "--heads", str(HEADS)])
    ArgumentParser.update_model_opts(args)
    for key, value in {
        "hidden_size": WIDTH, "enc_hid_size": WIDTH, "dec_hid_size": WIDTH, "transformer_ff": INNER,
        "src_word_vec_size": WIDTH, "tgt_word_vec_size": WIDTH, "share_embeddings": shared, "model_type": "text",
        "dropout": [0.0], "attention_dropout": [0.0], "optim": "adam", "world_size": 1,
        "parallel_mode": "data_parallel",
        "freeze_word_vecs_enc": False, "freeze_word_vecs_dec": False, "use_ckpting": [], **form,
    }.items():  # fmt: skip
        setattr(args, key, value)
    vocab = {"src": source, "tgt": target, "data_task": "seq2seq", "decoder_start_token": "<s>"}
    model = build_task_specific_model(args, dict_to_vocabs(vocab)).eval()
    model.generator = nn.Linear(WIDTH, len(target))
    randomise(model, seed)
    if shared:
        model.generator.weight = model.decoder.embeddings.word_lut.weight
    with torch.no_grad():
        model.generator.bias[target.index("</s>")] += 2.0
        model.generator.bias[[target.index("<blank>"), target.index("<s>")]] -= 40.0  # so nothing need be shared out
    state = {k: v.clone() for k, v in model.state_dict().items() if not k.startswith("generator")}
    state |= {k: v[:ROWS].clone() for k, v in state.items() if k.endswith(".pe.pe")}
    generator = {k: v.clone() for k, v in model.generator.state_dict().items()}
    torch.save(
        {"model": state, "generator": generator, "vocab": vocab, "opt": args, "optim": None}, folder / "model.pt"
    )

    def logits(ids: Tensor, given: Tensor) -> Tensor:
        with torch.no_grad():
            lengths = torch.tensor([ids.shape[1]])
            memory, state, lengths = model.encoder(ids[..., None], lengths)
            model.decoder.init_state(ids[..., None], memory, state)
            out, _ = model.decoder(given[..., None], memory, src_len=lengths)
            return model.generator(out)[0, -1]

    def beams(ids: Tensor) -> list[tuple[list[int], float]]:
        """By its own search, which here computes the whole target again in each step."""
        from onmt.translate import GNMTGlobalScorer
        from onmt.translate.beam_search import BeamSearch

        pad, start, end, unk = (target.index(token) for token in ("<blank>", "<s>", "</s>", "<unk>"))
        scorer = GNMTGlobalScorer(1.0, 0.0, "avg", "none")
        search = BeamSearch(4, 1, pad, start, end, unk, start, 4, scorer, 0, 20, False, 0, set(), False, 0.0, False)
        with torch.no_grad():
            lengths = torch.tensor([ids.shape[1]])
            memory, _, _ = model.encoder(ids[..., None], lengths)
            search.initialize(memory, lengths)
            while not search.done:
                rows = len(search.alive_seq)
                given, repeated = search.alive_seq[..., None], memory.repeat(rows, 1, 1)
                model.decoder.init_state(ids[..., None].repeat(rows, 1, 1), repeated, None)
                out, _ = model.decoder(given, repeated, src_len=lengths.repeat(rows))
                search.advance(model.generator(out)[:, -1].log_softmax(-1), None)
                if any(map(any, search.is_finished_list)):
                    search.update_finished()
        found = zip(search.predictions[0], search.scores[0], strict=True)
        return [(tokens.tolist(), float(score)) for tokens, score in found]

    _expect(folder, f"OpenNMT-py {onmt.__version__}", source, target, logits, beams, eos=False)


def _expect(
    folder: Path,
    library: str,
    source: list[str],
    target: list[str],
    logits: Callable[[Tensor, Tensor], Tensor],
    beams: Callable[[Tensor], list[tuple[list[int], float]]],
    eos: bool,
) -> None:
    """Logits after some target, greedy hypotheses, and those of the library's own beam search."""
    sources = texts([token for token in source if token[0] != "<"])
    ids = [[source.index(word) for word in text.split()] + [source.index("</s>")] * eos for text in sources]
    start, end = target.index("<s>"), target.index("</s>")
    never = [start, next(target.index(p) for p in ("<pad>", "<blank>") if p in target)]
    given = [start, 9, 5, 14]
    found = [greedy(logits, each, start, end, never) for each in ids]
    write(
        folder,
        {
            "library": library,
            "sources": sources,
            "target": given,
            "logits_of": 2,
            "logits": rounded(logits(torch.tensor([ids[2]]), torch.tensor([given]))),
            "greedy": [" ".join(target[i] for i in each) for each in found],
            "own_beam": [
                [{"text": " ".join(target[i] for i in h if i != end), "score": round(s, 5)} for h, s in beams(each)]
                for each in (torch.tensor([i]) for i in ids)
            ],
        },
    )


# JoeyNMT


def joeynmt() -> None:
    for seed, (name, form) in enumerate(
        {
            "joeynmt": {"layer_norm": "pre", "scale": True},
            "joeynmt-post": {"layer_norm": "post", "activation": "gelu", "scale": False, "shared": True},
        }.items()
    ):
        _joeynmt(name, dict(form), seed)


def _joeynmt(name: str, form: dict[str, Any], seed: int) -> None:
    from types import SimpleNamespace

    import joeynmt as library
    import yaml
    from joeynmt.helpers import subsequent_mask
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    folder, shared, scale = fresh(name), form.pop("shared", False), form.pop("scale")
    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None,
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None, lang_tags=[],
    )  # fmt: skip
    vocabularies = [Vocabulary(WORDS["target" if shared else side], special) for side in ("source", "target")]
    stack = {
        "type": "transformer", "num_heads": HEADS, "hidden_size": WIDTH, "ff_size": INNER, "dropout": 0.0,
        "embeddings": {"embedding_dim": WIDTH, "scale": scale}, **form,
    }  # fmt: skip
    config = {
        "name": name,
        "data": {
            "src": {"lang": "de", "level": "word", "voc_file": "src_vocab.txt"},
            "trg": {"lang": "en", "level": "word", "voc_file": "trg_vocab.txt"},
            "special_symbols": {k: v for k, v in vars(special).items() if v is not None},
        },
        "testing": {"beam_size": 5, "beam_alpha": 1.0},
        "model": {
            "tied_embeddings": shared,
            "tied_softmax": shared,
            "encoder": {**stack, "num_layers": 2},
            "decoder": {**stack, "num_layers": 1},
        },
    }
    model = build_model(config["model"], *vocabularies).eval()
    randomise(model, seed + 3)
    _favour_end(model)
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    source, target = (v._itos for v in vocabularies)
    for side, tokens in (("src", source), ("trg", target)):
        (folder / f"{side}_vocab.txt").write_text("".join(f"{t}\n" for t in tokens), encoding="utf-8")
    state = {k: v.clone() for k, v in model.state_dict().items()}
    state |= {k: v[:, :ROWS].clone() for k, v in state.items() if k.endswith("pe.pe")}
    torch.save({"steps": 7, "best_ckpt_score": np.float64(1.0), "model_state": state}, folder / "best.ckpt")

    def logits(ids: Tensor, given: Tensor) -> Tensor:
        with torch.no_grad():
            mask = torch.ones(1, 1, ids.shape[1], dtype=torch.bool)
            memory, hidden, _, _ = model(return_type="encode", src=ids, src_length=None, src_mask=mask)
            out, *_ = model(
                return_type="decode", trg_input=given, encoder_output=memory, encoder_hidden=hidden, src_mask=mask,
                unroll_steps=None, decoder_hidden=None, trg_mask=subsequent_mask(given.shape[1]),
            )  # fmt: skip
            return out[0, -1]

    def beams(ids: Tensor) -> list[tuple[list[int], float]]:
        from joeynmt.search import beam_search

        with torch.no_grad():
            mask = torch.ones(1, 1, ids.shape[1], dtype=torch.bool)
            memory, hidden, _, _ = model(return_type="encode", src=ids, src_length=None, src_mask=mask)
            given = {"max_output_length": 20, "alpha": 1.0, "n_best": 4, "return_prob": "hyp", "min_output_length": 0}
            tokens, scores, _ = beam_search(model, 4, memory, hidden, mask, **given)
        rows = [[i for i in row if i != special.pad_id] for row in tokens.long().tolist()]
        return list(zip(rows, scores.flatten().tolist(), strict=True))

    version = getattr(library, "__version__", "2.3.0")
    _expect(folder, f"JoeyNMT {version}", source, target, logits, beams, eos=True)


def _favour_end(model: Any) -> None:
    """Outputs end, and padding and start, which are never generated, have no probability to share out."""
    last = model.decoder.layer_norm or model.decoder.layers[-1].feed_forward.layer_norm
    rows = model.decoder.output_layer.weight
    with torch.no_grad():
        last.bias += 3.0 * rows[3] / rows[3].norm()
        rows[1] = rows[2] = -25 / last.weight / (last.bias / last.weight).sum()


# Marian


def marian() -> None:
    """By name and setting as Marian writes them; expected from CTranslate2, which has another table of positions."""
    import ctranslate2
    import yaml
    from ctranslate2.converters.marian import MarianConverter

    from tfexport.checkpoints.toolkit import sines_then_cosines

    folder = fresh("marian")
    generator = np.random.default_rng(11)
    tokens = ["</s>", "<unk>", *WORDS["target"]]

    def matrix(*shape: int) -> np.ndarray:
        return (1.7 * generator.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)

    arrays = {"Wemb": 3 * matrix(len(tokens), WIDTH), "decoder_ff_logit_out_b": matrix(1, len(tokens))}
    arrays["decoder_ff_logit_out_b"][0, 0] += 3.0
    arrays["decoder_ff_logit_out_b"][0, 1] -= 9.0  # Marian never says <unk>
    for stack, depth in (("encoder", 2), ("decoder", 1)):
        for i in range(1, depth + 1):
            blocks = ("self", "context") if stack == "decoder" else ("self",)
            for block in blocks:
                for letter in "qkvo":
                    arrays[f"{stack}_l{i}_{block}_W{letter}"] = matrix(WIDTH, WIDTH)
                    arrays[f"{stack}_l{i}_{block}_b{letter}"] = 0.2 * matrix(1, WIDTH)
            for number, sizes in (("1", (WIDTH, INNER)), ("2", (INNER, WIDTH))):
                arrays[f"{stack}_l{i}_ffn_W{number}"] = matrix(*sizes)
                arrays[f"{stack}_l{i}_ffn_b{number}"] = 0.2 * matrix(1, sizes[1])
            for norm in (*(f"{block}_Wo" for block in blocks), "ffn_ffn"):
                arrays[f"{stack}_l{i}_{norm}_ln_scale"] = 1 + 0.1 * matrix(1, WIDTH)
                arrays[f"{stack}_l{i}_{norm}_ln_bias"] = 0.1 * matrix(1, WIDTH)
    settings = {
        "type": "transformer", "enc-depth": 2, "dec-depth": 1, "transformer-heads": HEADS, "dim-emb": WIDTH,
        "transformer-decoder-autoreg": "self-attention", "transformer-no-projection": False,
        "transformer-ffn-activation": "gelu", "transformer-ffn-depth": 2, "transformer-preprocess": "",
        "transformer-postprocess": "dan", "transformer-postprocess-emb": "d", "tied-embeddings-all": True,
        "transformer-guided-alignment-layer": "last", "transformer-train-positions": False,
    }  # fmt: skip
    text = np.frombuffer(yaml.safe_dump(settings).encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **arrays, **{"special:model.yml": text})
    (folder / "vocab.yml").write_text("".join(f"{t}: {i}\n" for i, t in enumerate(tokens)), encoding="utf-8")
    # The converter takes a table that is there; Marian's own formula is not the one that it would compute.
    with_table = {**arrays, "Wpos": sines_then_cosines(0, ROWS, WIDTH).numpy(), "special:model.yml": text}
    np.savez(folder / "table.npz", **with_table)
    MarianConverter(str(folder / "table.npz"), [str(folder / "vocab.yml")]).convert(str(folder / "ct2"))
    translator = ctranslate2.Translator(str(folder / "ct2"), compute_type="float32", intra_threads=1)
    sources = texts(WORDS["target"])
    beams = {
        str(beam): [
            [{"text": " ".join(h), "score": round(s, 6)} for h, s in zip(r.hypotheses, r.scores, strict=True)]
            for r in translator.translate_batch(
                [text.split() for text in sources],
                beam_size=beam, num_hypotheses=beam, return_scores=True, disable_unk=True, max_decoding_length=20,
            )
        ]
        for beam in (1, 4)
    }  # fmt: skip
    shutil.rmtree(folder / "ct2")
    (folder / "table.npz").unlink()
    write(folder, {"library": f"CTranslate2 {ctranslate2.__version__}", "sources": sources, "beams": beams})


if __name__ == "__main__":
    {"fairseq": fairseq, "opennmt": opennmt, "joeynmt": joeynmt, "marian": marian}[sys.argv[1]]()
