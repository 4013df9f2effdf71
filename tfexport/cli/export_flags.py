"""The flags of `tfexport export`, by what they decide; `--help` shows them in the same order."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from tfexport_runtime.manifest import GraphFormat

_GRAPHS, _PRECISION, _OUTPUTS, _CHECK = "Form of the graphs", "Precision", "Further outputs", "The check"


class Extra(StrEnum):
    """Outputs that are made on request."""

    ATTENTION = "attention"
    ENCODER_STATE = "encoder-state"


Input = Annotated[Path, typer.Argument(help="ckpt.pt of a training run, or a checkpoint of another kind.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Bundle to write: a folder, or a file with --zip.")]
Zipped = Annotated[bool, typer.Option("--zip", help="One uncompressed file instead of a folder.")]
Layout = Annotated[
    Literal["bundle", "optimum"],
    typer.Option(help="optimum: a folder for Optimum and transformers.js, of a Hugging Face checkpoint."),
]
MaxShardSize = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="Largest file of weights, such as 500MB (a GB is 10^9 bytes): more weights go into several. "
        "A tensor that is larger has a file to itself.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace a bundle that is there already.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")]

Format = Annotated[
    GraphFormat,
    typer.Option(
        "--format", help="onnx runs everywhere and is fastest; docs/formats.md compares.", rich_help_panel=_GRAPHS
    ),
]
Ops = Annotated[
    Literal["ort", "portable"],
    typer.Option(
        help="ort: ONNX Runtime's fused operators, fastest. portable: standard ONNX operators only.",
        rich_help_panel=_GRAPHS,
    ),
]
Static = Annotated[
    str | None,
    typer.Option(
        metavar="SIZES",
        help="Numbers for all shapes, such as source=64,target=64,rows=4: for NNAPI, Core ML and QNN. "
        "Longer texts then do not fit. In standard operators.",
        rich_help_panel=_GRAPHS,
    ),
]
Opset = Annotated[int, typer.Option(help="Version of the standard operators.", rich_help_panel=_GRAPHS)]
WeightsInside = Annotated[
    bool,
    typer.Option(
        "--weights-inside",
        help="Of the format single: one file, without weights beside it.",
        rich_help_panel=_GRAPHS,
    ),
]
WithTokenizer = Annotated[
    bool,
    typer.Option(
        "--with-tokenizer", help="Of the format single: also a graph from texts to texts.", rich_help_panel=_GRAPHS
    ),
]

Precision = Annotated[
    Literal["fp32", "fp16", "int8", "int8-weight", "int4", "auto"],
    typer.Option(
        help="Of the weights; int8 computes in 8 bits as well; auto is the best measured for --target. "
        "Anything but fp32 may change tokens.",
        rich_help_panel=_PRECISION,
    ),
]
Target = Annotated[
    Literal["cpu", "web", "arm", "cuda"] | None,
    typer.Option(
        help="Where the bundle will run; anywhere if not given. Decides what auto means.", rich_help_panel=_PRECISION
    ),
]
KeepFloat = Annotated[
    list[str] | None,
    typer.Option(help="Pattern of weight names that stay in float; again for more.", rich_help_panel=_PRECISION),
]
FullRange = Annotated[
    bool,
    typer.Option(
        "--full-range",
        help="int8: one bit more, right only on processors with VNNI or on Arm.",
        rich_help_panel=_PRECISION,
    ),
]
Calibrate = Annotated[
    Path | None,
    typer.Option(
        help="int8: source text like that to come, some hundred lines. Activations are then rounded in fixed steps: "
        "a step takes 0.8 to 0.95 of the time.",
        rich_help_panel=_PRECISION,
    ),
]
Reproducible = Annotated[
    bool,
    typer.Option(
        "--reproducible",
        help="int8: the same tokens on every processor and in WebAssembly, for 1.2 to 1.8 times the time of a step.",
        rich_help_panel=_PRECISION,
    ),
]
MaxBleuLoss = Annotated[
    float | None,
    typer.Option(help="With --reference: refuse a bundle that loses more BLEU than this.", rich_help_panel=_PRECISION),
]

With = Annotated[
    list[Extra] | None,
    typer.Option(
        "--with",
        help="attention: the decoder also gives what each token looks at in the source. "
        "encoder-state: the encoder also gives its last hidden states. Again for more.",
        rich_help_panel=_OUTPUTS,
    ),
]
AttentionLayers = Annotated[
    str | None,
    typer.Option(
        help="For --with attention: the decoder's layers, from 0, such as 0,3; else the last.",
        rich_help_panel=_OUTPUTS,
    ),
]
AttentionHeads = Annotated[
    str | None,
    typer.Option(help="For --with attention: the heads of these layers, from 0; else all.", rich_help_panel=_OUTPUTS),
]

Text = Annotated[Path | None, typer.Option(help="Source text to check with, one a line.", rich_help_panel=_CHECK)]
Reference = Annotated[
    Path | None, typer.Option(help="Translations of --text, to give BLEU and chrF.", rich_help_panel=_CHECK)
]
Tolerance = Annotated[
    float,
    typer.Option(
        min=0,
        help="fp32: largest difference of logits and scores; T5's large activations need 1e-3.",
        rich_help_panel=_CHECK,
    ),
]
