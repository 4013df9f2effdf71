"""From a checkpoint to a bundle: trace, optimise, write, verify, publish."""

from __future__ import annotations

import gc
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tfexport.bundle_readme import bundle_readme
from tfexport.errors import ExportError, ParityError
from tfexport.formats.format import Work, Written
from tfexport.formats.registry import format_of
from tfexport.golden import golden_json
from tfexport.graphs.signature import FixedShape
from tfexport.layer_noise import FloatWeights
from tfexport.parity import ParityReport
from tfexport.precision import Platform, Precision, PrecisionChoice, check_operators, choose_precision
from tfexport.publish import published_when_complete
from tfexport.samples import sample_texts
from tfexport.verify import TOLERANCE, VerifyOptions, verify_bundle
from tfexport.weights import MAX_SHARD_BYTES
from tfexport_runtime.bundle import describe_files, read_bundle, write_manifest
from tfexport_runtime.manifest import GraphFormat, Manifest, ModelInfo, SourceInfo, TargetInfo, TokenizerInfo
from tfexport_train.checkpoint import Checkpoint, TextSide
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.evaluate import search_target

Operators = Literal["ort", "portable"]


@dataclass(frozen=True)
class ExportOptions:
    """How a bundle is made."""

    format: GraphFormat = "onnx"  # of the graphs; docs/formats.md says when to choose which
    operators: Operators = "ort"  # ort: fused operators, cache in place; portable: standard operators, growing cache
    static: FixedShape | None = None  # every shape a number: for NNAPI, Core ML and QNN; in standard operators
    opset: int = 18  # of standard operators; 18 runs on every runtime that is shipped
    target: Platform | None = None  # where the bundle will run; None: anywhere
    precision: Precision | Literal["auto"] = "fp32"  # auto: the best measured for the target
    keep_float: tuple[str, ...] = ()  # patterns of weight names that a reduced precision leaves alone
    full_range: bool = False  # int8 weights to 127 instead of 63: only for processors whose 8-bit sums cannot overflow
    calibration: Sequence[str] | None = None  # int8: texts like those to come, for fixed steps of activations
    reproducible: bool = False  # int8: sums of floats in float64, so that every processor gives the same tokens
    attention: bool = False  # the decoder also gives the weights of its cross-attention
    attention_layers: tuple[int, ...] = ()  # whose, counted from 0; none: the last layer
    attention_heads: tuple[int, ...] = ()  # of these layers; none: all
    encoder_state: bool = False  # the encoder also gives its last hidden states
    weights_inside: bool = False  # of the format single: in the graph's own file, below 2 GB
    with_tokenizer: bool = False  # of the format single: one more graph that takes and gives texts
    tolerance: float = TOLERANCE  # of the check in float32: on logits and scores
    max_bleu_loss: float | None = None  # with references: more is a failure
    max_shard_bytes: int = MAX_SHARD_BYTES  # of a file of weights; a larger tensor has a file to itself
    zip: bool = False  # one uncompressed zip instead of a folder
    texts: Sequence[str] | None = None  # sentences to verify with, beside random ids
    references: Sequence[str] | None = None  # their translations: BLEU and chrF go into the report
    force: bool = False  # replace what is at the target even if it is not a bundle
    name: str = "encoder-decoder Transformer"  # for people, in the manifest


@dataclass(frozen=True)
class ExportReport:
    manifest: Manifest
    choice: PrecisionChoice
    parity: ParityReport
    bytes: int  # of the whole bundle
    remarks: tuple[str, ...] = ()  # what the user should know of how it was done

    def to_dict(self) -> dict[str, Any]:
        """For programs: what was chosen, the size, and everything that the check found."""
        parity = self.parity.to_dict(complete=True)
        return {**asdict(self.choice), "bytes": self.bytes, "remarks": self.remarks, "parity": parity}


def export_bundle(
    checkpoint: Checkpoint,
    target: Path,
    options: ExportOptions,
    progress: Callable[[str], None] = lambda stage: None,
) -> ExportReport:
    """Writes a verified bundle to `target`, or nothing. `progress` hears the name of each stage.

    Raises ExportError for what cannot be exported as asked, ParityError when the bundle does not compute what the
    checkpoint computes.
    """
    if options.static is not None:
        options = _with_fixed_shape(options)
    if options.format != "single" and (options.weights_inside or options.with_tokenizer):
        raise ExportError("--weights-inside and --with-tokenizer are of the format single; choose --format single")
    choice = choose_precision(options.precision, options.target, options.full_range)
    check_operators(choice, options.target, options.operators)
    if options.reproducible:
        _check_reproducible(choice, options)
    if options.calibration is not None:
        _check_calibration(choice, options)
    with published_when_complete(target, options.zip, options.force) as folder:
        work = Work(checkpoint, checkpoint.view_model(), options, choice, folder, progress)
        written = format_of(options.format).write(work)
        manifest = _describe(work, written)
        _write_tokenizers(checkpoint, manifest, folder)
        _write_manifest(manifest, folder)
        gc.collect()  # graphs hold their weights, and are cycles
        progress("verify")
        parity = _verify(checkpoint, folder, options, written.float_weights)
        progress("publish")
        manifest = _write_self_description(checkpoint, manifest, parity, folder)
    size = sum(info.bytes for info in manifest.files.values())
    return ExportReport(manifest, choice, parity, size, written.remarks)


def _check_reproducible(choice: PrecisionChoice, options: ExportOptions) -> None:
    """Raises ExportError where products with weights, or a format, have sums of floats."""
    _check_int8("--reproducible", choice, options)
    if options.keep_float:
        raise ExportError("--reproducible has no products in float: leave out --keep-float")


def _check_int8(flag: str, choice: PrecisionChoice, options: ExportOptions) -> None:
    """Raises ExportError where there are no products in 8 bits."""
    if choice.precision != "int8":
        raise ExportError(f"{flag} is of int8, not of {choice.precision}: leave it out")
    if options.format not in ("onnx", "ort"):
        raise ExportError(f"{flag} is of the formats onnx and ort, not of {options.format}: leave it out")


def _check_calibration(choice: PrecisionChoice, options: ExportOptions) -> None:
    """Raises ExportError where no activation is rounded, and without a text."""
    _check_int8("--calibrate", choice, options)
    if not any(text.strip() for text in options.calibration or ()):
        raise ExportError("the text to calibrate with is empty; give some hundred lines like those to come")


def _with_fixed_shape(options: ExportOptions) -> ExportOptions:
    """It has standard operators, whatever was asked for. Raises ExportError for what does not have it."""
    if options.format not in ("onnx", "ort"):
        raise ExportError(f"--static is of the formats onnx and ort, not of {options.format}: leave out one of them")
    if options.precision != "fp32":
        raise ExportError(f"--static is written in float32, not {options.precision}: choose --precision fp32")
    return replace(options, operators="portable")


def _write_tokenizers(checkpoint: Checkpoint, manifest: Manifest, folder: Path) -> None:
    """One file where both sides share it."""
    for side, info in ((checkpoint.source, manifest.source), (checkpoint.target, manifest.target)):
        (folder / info.tokenizer.file).write_bytes(side.model)


def _write_manifest(manifest: Manifest, folder: Path) -> Manifest:
    manifest = replace(manifest, files=describe_files(folder))
    write_manifest(folder, manifest)
    return manifest


def _verify(checkpoint: Checkpoint, folder: Path, options: ExportOptions, weights: FloatWeights | None) -> ParityReport:
    wanted = VerifyOptions(
        texts=options.texts,
        references=options.references,
        max_bleu_loss=options.max_bleu_loss,
        tolerance=options.tolerance,
    )
    report = verify_bundle(read_bundle(folder), checkpoint, wanted, weights)
    if report.kernels is not None and report.kernels.in_float:
        raise ExportError(
            f"ran in float instead of integers here: {report.kernels.in_float[0]}; nothing was published. "
            "Keep that weight in float with --keep-float, or choose another --precision"
        )
    if not report.passed:
        raise ParityError(report)
    return report


def _write_self_description(checkpoint: Checkpoint, manifest: Manifest, parity: ParityReport, folder: Path) -> Manifest:
    """What the bundle says of itself: the parity summary, expected outputs, a README."""
    bundle = read_bundle(folder, verify=False)
    golden = golden_json(bundle, checkpoint, sample_texts(bundle, seed=1, count=8, longest=12))
    manifest = replace(manifest, parity=parity.to_dict())
    (folder / "golden.json").write_text(golden, encoding="utf-8")
    (folder / "README.md").write_text(bundle_readme(manifest, parity), encoding="utf-8")
    return _write_manifest(manifest, folder)


def _describe(work: Work, written: Written) -> Manifest:
    checkpoint, config, options = work.checkpoint, work.checkpoint.config, work.options
    source_file, target_file = _tokenizer_files(checkpoint)
    return Manifest(
        producer={
            name: importlib.metadata.version(name)
            for name in ("tfexport", "torch", "onnx", "onnxscript", "onnxruntime")
        },
        model=_model_info(work),
        source=SourceInfo(
            tokenizer=TokenizerInfo(checkpoint.source.kind, source_file),  # type: ignore[arg-type]
            add_bos=checkpoint.source.add_bos,
            add_eos=checkpoint.source.add_eos,
            prefix_ids=checkpoint.source.prefix_ids,
            suffix_ids=checkpoint.source.suffix_ids,
            **_special_ids(config),
        ),
        target=TargetInfo(
            tokenizer=TokenizerInfo(checkpoint.target.kind, target_file),  # type: ignore[arg-type]
            never_generated=search_target(config, checkpoint.target.tokenizer(config.unk_id).size).never_generated,
            prefix_ids=checkpoint.target.prefix_ids,
            **_special_ids(config),
        ),
        graphs=written.graphs,
        weights=tuple(written.weights),
        cache=written.cache,
        precision=work.choice.precision,
        operators=written.operators or options.operators,
        opset=written.opset,
        ir_version=written.ir_version,
        requirements=written.requirements,
        files={},
        generation=checkpoint.generation,
        graph_format=options.format,
    )


def _model_info(work: Work) -> ModelInfo:
    config, fixed = work.checkpoint.config, work.options.static
    return ModelInfo(
        name=work.options.name,
        parameters=sum(p.numel() for p in work.model.parameters()),
        d_model=config.d_model,
        num_heads=config.num_heads,
        head_size=config.head_size,
        num_encoder_layers=config.num_encoder_layers,
        num_decoder_layers=config.num_decoder_layers,
        d_ff=config.d_ff,
        source_vocab_size=config.source_vocab_size,
        target_vocab_size=config.target_vocab_size,
        max_source_length=fixed.source if fixed else config.max_positions,
        max_target_length=fixed.target if fixed else config.max_positions,
    )


def _special_ids(config: EncoderDecoderConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ("pad_id", "start_id", "eos_id", "unk_id")}


def _tokenizer_files(checkpoint: Checkpoint) -> tuple[str, str]:
    source, target = checkpoint.source, checkpoint.target
    if (source.kind, source.model) == (target.kind, target.model):
        return "shared" + _suffix(source), "shared" + _suffix(source)
    return "source" + _suffix(source), "target" + _suffix(target)


def _suffix(side: TextSide) -> str:
    return ".spm" if side.kind == "sentencepiece" else ".txt"
