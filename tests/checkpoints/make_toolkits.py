"""Writes data/toolkits/: tiny models of OpenNMT-py, JoeyNMT and Marian, and what these compute with them.

`python -m tests.checkpoints.make_toolkits NAME` from the root of the repository, where NAME is opennmt, joeynmt or
marian, in an environment with that library (Marian's is pymarian; for fairseq there is make_fairseq.py). Each library
has one model of 2 + 2 layers and one of 3 + 1. All are trained on a toy language, Marian's by Marian itself. Tables of
computed positions are cut to the first 40 rows. Hypotheses are greedy and those of the library's own beam search.
"""

from __future__ import annotations

import json
import os
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
LAYERS = {  # of encoder and decoder
    "opennmt": (2, 2), "opennmt-shared": (3, 1), "joeynmt": (2, 2), "joeynmt-post": (3, 1), "marian": (2, 2),
    "marian-3-1": (3, 1),
}  # fmt: skip
WORDS = {"source": [f"s{i}" for i in range(20)], "target": [f"t{i}" for i in range(24)]}
LENGTHS = (1, 4, 7, 2, 5)


def texts(words: list[str]) -> list[str]:
    generator = np.random.default_rng(6)
    return [" ".join(words[i] for i in generator.integers(0, len(words), length)) for length in LENGTHS]


def greedy(
    logits: Callable[[Tensor, Tensor], Tensor], source: list[int], start: int, end: int, never: list[int]
) -> list[int]:
    """logits(source [B, S], target [B, T]) -> [B, T, V]."""
    target = [start]
    while len(target) < 13:
        scores = logits(torch.tensor([source]), torch.tensor([target]))[0, -1].clone()
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


def train(
    model: nn.Module, logits: Callable[[Tensor, Tensor], Tensor], source: list[str], target: list[str], eos: bool
) -> None:
    """On the toy language. source, target: vocabularies. logits as in _expect, of whole batches."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.35)
        else:
            nn.init.constant_(parameter, float("norm" in name and name.endswith("weight")))
    words = [[token for token in tokens if token[0] != "<"] for tokens in (source, target)]
    lines = toy_lines(*words)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    start, end = target.index("<s>"), target.index("</s>")
    for step in range(1200):
        chosen = [line for line in lines if len(line[0]) == 1 + step % 6][step % 20 :: 20][:32]
        ids = torch.tensor([[source.index(w) for w in s] + [source.index("</s>")] * eos for s, _ in chosen])
        wanted = torch.tensor([[target.index(w) for w in t] + [end] for _, t in chosen])
        given = torch.cat([torch.full((len(wanted), 1), start), wanted[:, :-1]], dim=1)
        loss = nn.functional.cross_entropy(logits(ids, given).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    sys.stdout.write(f"trained to a loss of {loss.item():.2f}\n")


def toy_lines(source: list[str], target: list[str]) -> list[tuple[list[str], list[str]]]:
    """Each word has a translation, and one line in eight is said backwards, so that a model cannot be sure."""
    generator = np.random.default_rng(1)
    lines = []
    for number in range(4000):
        chosen = generator.integers(0, len(source), generator.integers(1, 7)).tolist()
        said = chosen[::-1] if number % 8 == 0 else chosen
        lines.append(([source[i] for i in chosen], [target[(5 * i + 3) % len(target)] for i in said]))
    return lines


# OpenNMT-py


def opennmt() -> None:
    for name, form in {
        "opennmt": {"add_qkvbias": True},
        "opennmt-shared": {
            "share": True,
            "pos_ffn_activation_fn": "silu",
            "layer_norm": "rms",
            "add_qkvbias": False,
            "position_encoding_type": "SinusoidalConcat",
        },
    }.items():
        _opennmt(name, dict(form))


def _opennmt(name: str, form: dict[str, Any]) -> None:
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
    layers = [str(number) for number in LAYERS[name]]
    options = ["--encoder_type", "transformer", "--decoder_type", "transformer", "--position_encoding"]
    args, _ = parser.parse_known_args(
        [*options, "--enc_layers", layers[0], "--dec_layers", layers[1], "--heads", str(HEADS)]
    )
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
    if shared:
        model.generator.weight = model.decoder.embeddings.word_lut.weight

    def logits(ids: Tensor, given: Tensor) -> Tensor:
        lengths = torch.full((len(ids),), ids.shape[1])
        memory, state, lengths = model.encoder(ids[..., None], lengths)
        model.decoder.init_state(ids[..., None], memory, state)
        out, _ = model.decoder(given[..., None], memory, src_len=lengths)
        found: Tensor = model.generator(out)
        return found

    train(model, logits, source, target, eos=False)
    with torch.no_grad():
        model.generator.bias[[target.index("<blank>"), target.index("<s>")]] -= 40.0  # so nothing need be shared out
    state = {k: v.clone() for k, v in model.state_dict().items() if not k.startswith("generator")}
    state |= {k: v[:ROWS].clone() for k, v in state.items() if k.endswith(".pe.pe")}
    generator = {k: v.clone() for k, v in model.generator.state_dict().items()}
    torch.save(
        {"model": state, "generator": generator, "vocab": vocab, "opt": args, "optim": None}, folder / "model.pt"
    )

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
    with torch.no_grad():
        found = [greedy(logits, each, start, end, never) for each in ids]
    with torch.no_grad():
        last = [rounded(logits(torch.tensor([each]), torch.tensor([given]))[0, -1]) for each in ids]
    values = {
        "library": library,
        "sources": sources,
        "target": given,
        "logits": last,
        "greedy": [" ".join(target[i] for i in each) for each in found],
        "own_beam": [
            [{"text": " ".join(target[i] for i in h if i != end), "score": round(s, 5)} for h, s in beams(each)]
            for each in (torch.tensor([i]) for i in ids)
        ],
    }
    write(folder, values)


# JoeyNMT


def joeynmt() -> None:
    for name, form in {
        "joeynmt": {"layer_norm": "pre", "scale": True},
        "joeynmt-post": {"layer_norm": "post", "activation": "gelu", "scale": False, "shared": True},
    }.items():
        _joeynmt(name, dict(form))


def _joeynmt(name: str, form: dict[str, Any]) -> None:
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
            "encoder": {**stack, "num_layers": LAYERS[name][0]},
            "decoder": {**stack, "num_layers": LAYERS[name][1]},
        },
    }
    model = build_model(config["model"], *vocabularies).eval()
    source, target = (v._itos for v in vocabularies)

    def logits(ids: Tensor, given: Tensor) -> Tensor:
        mask = torch.ones(len(ids), 1, ids.shape[1], dtype=torch.bool)
        memory, hidden, _, _ = model(return_type="encode", src=ids, src_length=None, src_mask=mask)
        out: Tensor = model(
            return_type="decode", trg_input=given, encoder_output=memory, encoder_hidden=hidden, src_mask=mask,
            unroll_steps=None, decoder_hidden=None, trg_mask=subsequent_mask(given.shape[1]),
        )[0]  # fmt: skip
        return out

    train(model, logits, source, target, eos=True)
    _silence(model)
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    for side, tokens in (("src", source), ("trg", target)):
        (folder / f"{side}_vocab.txt").write_text("".join(f"{t}\n" for t in tokens), encoding="utf-8")
    state = {k: v.clone() for k, v in model.state_dict().items()}
    state |= {k: v[:, :ROWS].clone() for k, v in state.items() if k.endswith("pe.pe")}
    torch.save({"steps": 7, "best_ckpt_score": np.float64(1.0), "model_state": state}, folder / "best.ckpt")

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


def _silence(model: Any) -> None:
    """Padding and start, which are never generated, have no probability to share out."""
    last = model.decoder.layer_norm or model.decoder.layers[-1].feed_forward.layer_norm
    rows = model.decoder.output_layer.weight
    with torch.no_grad():
        rows[1] = rows[2] = -25 / last.weight / (last.bias / last.weight).sum()


# Marian


def marian() -> None:
    """Trained and searched by Marian itself, which also tells the log-probability of every token."""
    for name, form in {
        "marian": "--tied-embeddings-all --transformer-postprocess-emb d --transformer-ffn-activation gelu",
        "marian-3-1": "--tied-embeddings --transformer-postprocess-emb nd",
    }.items():
        _marian(name, form, shared=name == "marian")


def _marian(name: str, form: str, shared: bool) -> None:
    import pymarian

    folder, (encoder, decoder) = fresh(name), LAYERS[name]
    words = {side: WORDS["target" if shared else side] for side in ("source", "target")}
    files = {side: folder / ("vocab.yml" if shared else f"vocab.{side}.yml") for side in words}
    for side, file in files.items():
        file.write_text("".join(f"{t}: {i}\n" for i, t in enumerate(["</s>", "<unk>", *words[side]])), encoding="utf-8")
    corpus = toy_corpus(words["source"], words["target"], folder)
    os.chdir(folder)  # Marian writes down the paths that it is given
    vocabularies = f"--vocabs {files['source'].name} {files['target'].name}"
    pymarian.Trainer(
        f"--model model.npz --type transformer --train-sets {corpus['source'].name} {corpus['target'].name} "
        f"{vocabularies} --save-freq 9999 "
        f"--enc-depth {encoder} --dec-depth {decoder} --dim-emb {WIDTH} --transformer-heads {HEADS} {form} "
        f"--transformer-dim-ffn {INNER} --transformer-postprocess dan --quiet "
        "--learn-rate 0.01 --optimizer adam --mini-batch 64 --after-batches 1500 --max-length 20 --seed 5 "
        "--cost-type ce-mean-words --cpu-threads 1 --workspace 256"
    ).train()
    sources = texts(words["source"])
    beams = {}
    for beam in (1, 4):
        translator = pymarian.Translator(
            f"--models model.npz {vocabularies} --cpu-threads 1 --beam-size {beam} --normalize 1 --n-best --allow-unk "
            "--word-scores --quiet --quiet-translation --workspace 256"
        )
        rows = [line.split(" ||| ") for line in translator.translate(sources)]
        beams[str(beam)] = [
            [
                {"text": text, "score": float(score), "tokens": [float(x) for x in tokens.split()[1:]]}
                for number, text, tokens, _, score in rows
                if int(number) == i
            ]
            for i in range(len(sources))
        ]
    for file in {*folder.iterdir()} - {folder / "model.npz", folder / "model.npz.decoder.yml", *files.values()}:
        file.unlink()
    write(folder, {"library": f"Marian {pymarian.__version__}", "sources": sources, "beams": beams})


def toy_corpus(source: list[str], target: list[str], folder: Path) -> dict[str, Path]:
    files = {side: folder / f"corpus.{side}" for side in ("source", "target")}
    for i, file in enumerate(files.values()):
        file.write_text("".join(" ".join(line[i]) + "\n" for line in toy_lines(source, target)), encoding="utf-8")
    return files


if __name__ == "__main__":
    {"opennmt": opennmt, "joeynmt": joeynmt, "marian": marian}[sys.argv[1]]()
