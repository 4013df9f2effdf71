"""Time and memory of importing the base shape (6 + 6 layers, d_model 512, 32,000 tokens), one row a family.

    .venv-peers/bin/python -m tests.checkpoints.measure_imports FOLDER [NAME...]

Makes what is not there yet in FOLDER (3 GB), with random weights: Hugging Face's by transformers, CTranslate2's by its
converter, those of other toolkits from the kept small ones, grown. Then runs `.venv/bin/tfexport import` on each.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.checkpoints.tutorial_classes import AnnotatedEncoderDecoder, BlogTransformer
from tfexport.checkpoints.training_files import CLASSES

TOOLKITS = Path(__file__).parent / "data" / "toolkits"
WIDTH, INNER, HEADS, LAYERS, VOCABULARY, POSITIONS = 512, 2048, 8, 6, 32000, 512
GROWN = {8: WIDTH, 12: INNER, 40: POSITIONS}  # the sizes of the small models
BART = {
    "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER, "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
}  # fmt: skip
LANGUAGES = ["--source-language", "7", "--target-language", "8"]


def main() -> None:
    torch.set_num_threads(1)
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(FAMILIES)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        make, file, _ = FAMILIES[name]
        path = folder / name
        if not path.exists():
            path.mkdir()
            make(path)
    weights = 0.0
    sys.stdout.write(
        "| family | file, MiB | seconds | of the processor | peak, MiB | over the weights |\n"
        "|---|--:|--:|--:|--:|--:|\n"
    )
    for name in names:
        _, file, options = FAMILIES[name]
        path = folder / name / file
        size = sum(f.stat().st_size for f in ([path] if path.is_file() else path.iterdir())) / 2**20
        seconds, busy, peak = measured(
            [".venv/bin/tfexport", "import", str(path), "-o", str(folder / "out.pt"), *options]
        )
        weights = (folder / "out.pt").stat().st_size / 2**20
        sys.stdout.write(f"| {name} | {size:.0f} | {seconds:.1f} | {busy:.1f} | {peak:.0f} | {peak / weights:.2f} |\n")
        sys.stdout.flush()
    (folder / "out.pt").unlink()


_MEASURE = """
import os, sys, time
start = time.perf_counter()
quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet), 0)
print(status, time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


def measured(command: list[str]) -> tuple[float, float, float]:
    """Seconds of the clock and of the processor, and the peak of resident memory in MiB."""
    # From a small process: the peak of a child begins with that of its parent.
    small = [sys.executable, "-S", "-c", _MEASURE, *command]
    done = subprocess.run(
        small, capture_output=True, encoding="utf-8", check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    status, *figures = map(float, done.stdout.split())
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    seconds, busy, peak = figures
    return seconds, busy, peak


# What is imported


def hugging_face(
    config: str, settings: Mapping[str, Any], dtype: torch.dtype = torch.float32
) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import transformers as hf

        model = hf.AutoModelForSeq2SeqLM.from_config(getattr(hf, config)(**settings))
        model.to(dtype).save_pretrained(folder)

    return make


def tutorial(make: Callable[[], torch.nn.Module]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "enable_nested_tensor")
            torch.save(make().state_dict(), folder / "model.pt")

    return write


class Stock(nn.Module):
    """nn.Transformer as its users have it."""

    def __init__(self) -> None:
        super().__init__()
        self.src_embedding, self.tgt_embedding = (nn.Embedding(VOCABULARY, WIDTH) for _ in range(2))
        self.transformer = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, INNER)
        self.generator = nn.Linear(WIDTH, VOCABULARY)


def grown(tensors: Mapping[str, Tensor], tokens: int) -> dict[str, Tensor]:
    """Random weights of the base shape, by the names of a small model with so many tokens."""
    return {name: big(tensor, tokens) for name, tensor in all_layers(tensors)}


def big(tensor: Tensor, tokens: int) -> Tensor:
    shape = [GROWN.get(length, VOCABULARY if length == tokens else length) for length in tensor.shape]
    return torch.randn(shape) * 0.02 if tensor.is_floating_point() else tensor


def all_layers(tensors: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each layer of the small model that is its stack's first, six times, and what is in no layer."""
    number = re.compile(r"(layers\.|transformer\.|_l)(\d+)([._])")
    for name, tensor in tensors.items():
        match = number.search(name)
        first = 1 if match and match[1] == "_l" else 0  # Marian's layers begin at 1
        if match is None:
            yield name, tensor
        elif int(match[2]) == first:
            for i in range(first, first + LAYERS):
                yield f"{name[: match.start(2)]}{i}{name[match.end(2) :]}", tensor


def small(path: Path) -> Any:
    with torch.serialization.safe_globals(list(CLASSES)):
        return torch.load(path, weights_only=True)


def words(first: list[str]) -> list[str]:
    return [*first, *(f"w{i}" for i in range(len(first), VOCABULARY))]


def fairseq(folder: Path) -> None:
    content = small(TOOLKITS / "fairseq" / "checkpoint_best.pt")
    content["model"] = grown(content["model"], len(content["model"]["decoder.embed_tokens.weight"]))
    settings = content["cfg"]["model"]
    settings.encoder_attention_heads = settings.decoder_attention_heads = HEADS
    torch.save(content, folder / "checkpoint_best.pt")
    for language in ("de", "en"):
        lines = "".join(f"w{i} 1\n" for i in range(4, VOCABULARY))
        (folder / f"dict.{language}.txt").write_text(lines, encoding="utf-8")


def opennmt(folder: Path) -> None:
    content = small(TOOLKITS / "opennmt-shared" / "model.pt")
    content |= {part: grown(content[part], 28) for part in ("model", "generator")}
    content["vocab"] |= {side: words(content["vocab"][side]) for side in ("src", "tgt")}
    content["opt"].heads = HEADS
    torch.save(content, folder / "model.pt")


def joeynmt(folder: Path) -> None:
    content = small(TOOLKITS / "joeynmt-post" / "best.ckpt")
    content["model_state"] = grown(content["model_state"], 28)
    torch.save(content, folder / "best.ckpt")
    for name in ("src_vocab.txt", "trg_vocab.txt"):
        tokens = (TOOLKITS / "joeynmt-post" / name).read_text(encoding="utf-8").split()
        (folder / name).write_text("".join(f"{token}\n" for token in words(tokens)), encoding="utf-8")
    config = (TOOLKITS / "joeynmt-post" / "config.yaml").read_text(encoding="utf-8")
    config = config.replace("num_heads: 2", f"num_heads: {HEADS}").replace("num_layers: 1", f"num_layers: {LAYERS}")
    (folder / "config.yaml").write_text(config, encoding="utf-8")


def marian_npz(folder: Path) -> None:
    with np.load(TOOLKITS / "marian" / "model.npz") as file:
        arrays = dict(file)
    settings = arrays.pop("special:model.yml")
    tokens = len(arrays["Wemb"])
    made = grown({name: torch.from_numpy(array) for name, array in arrays.items()}, tokens)
    text = settings.tobytes().decode().rstrip("\0")
    for name, value in (("transformer-heads", HEADS), ("enc-depth", LAYERS), ("dec-depth", LAYERS)):
        text = re.sub(rf"^{name}: \d+", f"{name}: {value}", text, flags=re.MULTILINE)
    special = {"special:model.yml": np.frombuffer(f"{text}\0".encode(), np.int8)}
    np.savez(folder / "model.npz", **{name: tensor.numpy() for name, tensor in made.items()}, **special)
    lines = "".join(f"{token}: {i}\n" for i, token in enumerate(words(["</s>", "<unk>"])))
    (folder / "vocab.yml").write_text(lines, encoding="utf-8")


def ctranslate2(folder: Path) -> None:
    from ctranslate2.converters.marian import MarianConverter

    marian_npz(folder)
    MarianConverter(str(folder / "model.npz"), [str(folder / "vocab.yml")] * 2).convert(str(folder / "model"))


def facts(*given: str) -> list[str]:
    ids = ("pad_id=0", "start_id=1", "eos_id=2", "unk_id=3")
    return ["--ids", *(part for fact in (f"num_heads={HEADS}", *ids, *given) for part in ("--set", fact))]


SIZES = VOCABULARY, VOCABULARY
ENDS = "source_add_bos=false", "source_add_eos=true"
MARIAN = {**BART, "pad_token_id": 1, "eos_token_id": 0, "decoder_start_token_id": 1, "scale_embedding": True}
T5 = {"vocab_size": VOCABULARY, "d_model": WIDTH, "num_layers": LAYERS, "d_ff": INNER, "decoder_start_token_id": 0}
FAMILIES: dict[str, tuple[Callable[[Path], None], str, list[str]]] = {
    "Annotated Transformer": (
        tutorial(lambda: AnnotatedEncoderDecoder(*SIZES, n=(LAYERS, LAYERS), d=WIDTH, d_ff=INNER, h=HEADS)),
        "model.pt", facts(),
    ),
    "pre-norm class of a blog": (
        tutorial(lambda: BlogTransformer(*SIZES, layers=(LAYERS, LAYERS), d_model=WIDTH, d_ff=INNER, num_heads=HEADS)),
        "model.pt", facts(*ENDS),
    ),
    "torch.nn.Transformer": (
        tutorial(Stock), "model.pt",
        facts("norm_position=post", "activation=relu", "scale_embedding=true", "positions=sinusoidal", *ENDS),
    ),
    "Marian": (hugging_face("MarianConfig", MARIAN), "", ["--ids"]),
    "Marian, 16 bits": (hugging_face("MarianConfig", MARIAN, torch.float16), "", ["--ids"]),
    "BART": (hugging_face("BartConfig", BART), "", ["--ids"]),
    "mBART": (hugging_face("MBartConfig", BART), "", ["--ids", *LANGUAGES]),
    "M2M100": (hugging_face("M2M100Config", BART), "", ["--ids", *LANGUAGES]),
    "Pegasus": (hugging_face("PegasusConfig", BART), "", ["--ids"]),
    "T5": (hugging_face("T5Config", {**T5, "num_heads": HEADS}), "", ["--ids"]),
    "mT5": (hugging_face("MT5Config", {**T5, "num_heads": HEADS}), "", ["--ids"]),
    "fairseq": (fairseq, "checkpoint_best.pt", []),
    "OpenNMT-py": (opennmt, "model.pt", []),
    "JoeyNMT": (joeynmt, "best.ckpt", []),
    "Marian npz": (marian_npz, "model.npz", []),
    "CTranslate2": (ctranslate2, "model", []),
}  # fmt: skip


if __name__ == "__main__":
    main()
