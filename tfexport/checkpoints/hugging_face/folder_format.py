"""From a Hugging Face folder to a checkpoint of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from torch import Tensor

from tfexport.checkpoints.facts_file import check_names
from tfexport.checkpoints.hugging_face import bart, t5
from tfexport.checkpoints.hugging_face.folder import Folder
from tfexport.checkpoints.hugging_face.generation import generation
from tfexport.checkpoints.hugging_face.layout import Family, Layout
from tfexport.checkpoints.hugging_face.texts import Texts, texts
from tfexport.checkpoints.imported import Imported, ImportOptions, Match
from tfexport.checkpoints.mapping import Mapped, checked_weights, map_weights
from tfexport_train.checkpoint import Checkpoint, TextSide
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.errors import CheckpointError

FAMILIES: Mapping[str, Family] = {**bart.FAMILIES, **t5.FAMILIES}
_CONFIG_FIELDS = tuple(f.name for f in fields(EncoderDecoderConfig))


@dataclass(frozen=True)
class HuggingFaceFolder:
    name: str = "Hugging Face folder"

    def recognises(self, path: Path) -> bool:
        try:
            return path.is_dir() and "model_type" in Folder(path).config
        except CheckpointError:
            return False

    def read(self, path: Path, options: ImportOptions) -> Imported:
        folder = Folder(path)
        family = _family(folder)
        check_names(options.config, _CONFIG_FIELDS, str(path))
        tensors = folder.weights()
        layout = family.layout(folder, tensors)
        sizes = _vocabulary_sizes(folder, layout)
        sides = texts(folder, options, sizes["source_vocab_size"], sizes["target_vocab_size"])
        mapped = map_weights(tensors, layout.rules, layout.drop)
        _drop_zero_bias(mapped)
        config = EncoderDecoderConfig.from_dict(
            {
                **layout.fields,
                **sizes,
                **_special_ids(folder, family, sides, min(sizes.values())),
                "output_bias": "output.bias" in mapped.weights,
                **options.config,
            }
        )
        _add_positions(mapped, layout, config)
        weights, explanation = checked_weights(mapped, config, tensors, path)
        silent = {config.pad_id, config.start_id} - {config.eos_id}
        defaults = generation(folder, len(sides.target.prefix_ids), silent)
        source = _with_bos(sides.source, folder) if family.source_bos else sides.source
        checkpoint = Checkpoint(config, weights, source, sides.target, defaults.options)
        return Imported(
            checkpoint, f"{self.name}, {family.name}", (*layout.notes, *sides.notes, *defaults.notes), explanation
        )


def _family(folder: Folder) -> Family:
    folder.config.choice("model_type", FAMILIES, "")
    folder.config.only("is_encoder_decoder", True)
    return FAMILIES[folder.config.text("model_type")]


def _vocabulary_sizes(folder: Folder, layout: Layout) -> dict[str, int]:
    size = folder.config.integer("vocab_size")
    target = size if layout.fields["share_embeddings"] else folder.config.integer("decoder_vocab_size", size)
    return {"source_vocab_size": size, "target_vocab_size": target}


def _special_ids(folder: Folder, family: Family, sides: Texts, size: int) -> dict[str, int]:
    start = folder.special("decoder_start_token_id", family.start_id) if sides.start_id is None else sides.start_id
    pad = folder.special("pad_token_id")
    unk = family.unk_id if sides.unk_id is None else sides.unk_id
    return {
        "pad_id": pad,
        "start_id": start,
        "eos_id": folder.special("eos_token_id"),
        "unk_id": unk if unk < size else pad,
    }


def _with_bos(source: TextSide, folder: Folder) -> TextSide:
    return replace(source, prefix_ids=(folder.special("bos_token_id", 0), *source.prefix_ids))


def _drop_zero_bias(mapped: Mapped) -> None:
    """Most models of these classes have a bias of zeros on the logits, which is not worth a sum in every step."""
    bias = mapped.weights.get("output.bias")
    if bias is not None and not bias.any():
        del mapped.weights["output.bias"]


def _add_positions(mapped: Mapped, layout: Layout, config: EncoderDecoderConfig) -> None:
    """Computes the tables that no file holds, and cuts those that are longer than they need to be."""
    for side in ("source", "target"):
        name = f"{side}_embedding.position_table"
        if layout.positions is not None and config.positions == "learned":
            table: Tensor = layout.positions(config.max_positions, config.d_model)
            mapped.weights[name] = table
            mapped.matches.append(Match((), (name,), tuple(table.shape), "computed"))
        elif name in mapped.weights:
            mapped.weights[name] = mapped.weights[name][: config.max_positions]


FORMAT = HuggingFaceFolder()
