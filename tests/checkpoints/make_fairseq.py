"""Writes data/toolkits/fairseq*: tiny models that fairseq itself trained, saved and searched with.

    python tests/checkpoints/make_fairseq.py    # with fairseq 0.12.2 from its wheel: Python 3.8, torch 1.12.1

One has 2 + 2 layers and the paper's form, one 3 + 1 and nearly every option that can be imported. The language is a
toy: each word has a translation, and one line in eight is said backwards, so that the model cannot be sure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.version import __version__

FOLDER = Path(__file__).parent.resolve() / "data" / "toolkits"
WORDS = {"de": [f"s{i}" for i in range(20)], "en": [f"t{i}" for i in range(24)]}
LENGTHS = (1, 4, 7, 2, 5)
FORMS = {
    "fairseq": "--encoder-layers 2 --decoder-layers 2 --share-all-embeddings",
    "fairseq-3-1": (
        "-s de -t en --encoder-layers 3 --decoder-layers 1 --encoder-normalize-before --decoder-normalize-before "
        "--no-scale-embedding --encoder-learned-pos --decoder-learned-pos --layernorm-embedding --activation-fn gelu"
    ),
}
SIZES = (
    "--encoder-embed-dim 8 --decoder-embed-dim 8 --encoder-ffn-embed-dim 12 --decoder-ffn-embed-dim 12 "
    "--encoder-attention-heads 2 --decoder-attention-heads 2 --max-source-positions 40 --max-target-positions 40"
)


def main() -> None:
    torch.set_num_threads(1)
    for name, form in FORMS.items() if len(sys.argv) < 2 else [(sys.argv[1], FORMS[sys.argv[1]])]:
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as temporary:
            os.chdir(temporary)  # fairseq writes down the paths that it is given
            train(form, shared="share-all" in form)
            for file in ("out/checkpoint_last.pt", "bin/dict.de.txt", "bin/dict.en.txt"):
                shutil.copy(file, folder)
            (folder / "checkpoint_last.pt").rename(folder / "checkpoint_best.pt")
            expected = used(name)
        (folder / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")


def train(form: str, shared: bool) -> None:
    generator = random.Random(3)
    source, target = WORDS["en" if shared else "de"], WORDS["en"]
    for part, count in (("train", 4000), ("valid", 50)):
        with open(f"{part}.de", "w") as of_source, open(f"{part}.en", "w") as of_target:
            for number in range(count):
                chosen = [generator.randrange(len(source)) for _ in range(generator.randrange(1, 7))]
                of_source.write(" ".join(source[i] for i in chosen) + "\n")
                said = chosen[::-1] if number % 8 == 0 else chosen
                of_target.write(" ".join(target[(5 * i + 3) % len(target)] for i in said) + "\n")
    joined = "--joined-dictionary" if shared else ""
    run(f"fairseq-preprocess -s de -t en --trainpref train --validpref valid --destdir bin --workers 1 {joined}")
    run(
        f"fairseq-train bin --arch transformer --task translation {SIZES} {form} --optimizer adam --lr 0.01 "
        "--criterion cross_entropy --max-tokens 400 --max-update 1500 --save-dir out --no-epoch-checkpoints "
        "--no-save-optimizer-state --cpu --seed 1 --dropout 0 --log-format none"
    )


def run(command: str) -> None:
    subprocess.run(command.split(), check=True)


def used(name: str) -> dict[str, Any]:
    """Logits, and what the search of fairseq-generate finds, greedily and with five beams."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(["out/checkpoint_last.pt"])
    model, source, target = models[0].eval(), task.source_dictionary, task.target_dictionary
    generator = random.Random(6)
    words = [word for word in source.symbols[4:] if word[0] in "st"]
    texts = [" ".join(generator.choice(words) for _ in range(length)) for length in LENGTHS]
    encoded = [source.encode_line(t, add_if_not_exist=False, append_eos=True).long()[None] for t in texts]
    given = torch.tensor([[2, 9, 5, 14]])
    with torch.no_grad():
        logits = [model(ids, torch.tensor([ids.shape[1]]), given)[0][0, -1].tolist() for ids in encoded]
    beams = {}
    for beam in (1, 5):
        settings = argparse.Namespace(beam=beam, nbest=beam, max_len_a=0, max_len_b=20)
        search = task.build_generator(models, settings)
        beams[str(beam)] = [
            [
                {"text": target.string(h["tokens"]), "score": round(float(h["score"]), 5)}
                for h in task.inference_step(search, models, sample(ids))[0][:beam]
            ]
            for ids in encoded
        ]
    return {
        "library": f"fairseq {__version__}",
        "sources": texts,
        "target": given[0].tolist(),
        "logits": [[round(x, 5) for x in row] for row in logits],
        "beams": beams,
    }


def sample(ids: torch.Tensor) -> dict[str, Any]:
    return {"net_input": {"src_tokens": ids, "src_lengths": torch.tensor([ids.shape[1]])}}


if __name__ == "__main__":
    main()
