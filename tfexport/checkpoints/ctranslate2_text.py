"""What lies beside a CTranslate2 model.bin: configuration and vocabularies, and how they make ids of text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfexport.checkpoints.ctranslate2_file import ModelFile
from tfexport.checkpoints.imported import ImportOptions
from tfexport.checkpoints.mapping import Mapped
from tfexport.checkpoints.tokenizers.files import read_tokenizer
from tfexport.checkpoints.tokenizers.tokens import made_of_characters, number_list, read_text, read_tokens, token_list
from tfexport.checkpoints.toolkit import same_place, token_id
from tfexport_train.checkpoint import TextSide
from tfexport_train.errors import CheckpointError

_SENTENCEPIECE = ("shared.spm", "sentencepiece.model", "sentencepiece.bpe.model", "spiece.model", "spm.model")


def read_config(path: Path, file: ModelFile) -> dict[str, Any]:
    """config.json, or what older files say in its place."""
    values: dict[str, Any] = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    if (path / "config.json").is_file():
        try:
            read = json.loads(read_text(path / "config.json"))
        except ValueError as error:
            raise CheckpointError(f"{path / 'config.json'}: not JSON: {error}") from error
        if not isinstance(read, dict):
            raise CheckpointError(f"{path / 'config.json'}: expected names and values")
        return {"decoder_start_token": values["bos_token"], **values, **read}
    begins = values["bos_token"] if file.attribute("with_target_bos", 1) else values["eos_token"]
    values["add_source_bos"] = bool(file.attribute("with_source_bos", 0))
    values["add_source_eos"] = bool(file.attribute("with_source_eos", 0))
    return {**values, "decoder_start_token": begins}


def read_vocabularies(path: Path, config: Mapping[str, Any]) -> dict[str, list[str]]:
    found = {}
    for side in ("source", "target"):
        names = [f"{kind}_vocabulary{ending}" for kind in ("shared", side) for ending in (".json", ".txt")]
        file = next((path / name for name in names if (path / name).is_file()), None)
        if file is None:
            raise CheckpointError(f"{path}: no {side} vocabulary; expected one of {', '.join(names)}")
        tokens = read_tokens(file)
        # CTranslate2 adds the unknown token where the file has none.
        found[side] = tokens if config["unk_token"] in tokens else [*tokens, config["unk_token"]]
    return found


def special_ids(
    mapped: Mapped, vocabularies: dict[str, list[str]], names: Mapping[str, Any], path: Path
) -> dict[str, int]:
    """Our one number for both sides. Raises CheckpointError for tokens that are not there."""
    target = vocabularies["target"]
    start = names["decoder_start_token"] or names["bos_token"]
    missing = [token for token in (start, names["eos_token"]) if token not in target]
    if missing:
        raise CheckpointError(
            f"{path}: the target vocabulary lacks {', '.join(map(repr, missing))} of its configuration"
        )
    padding = next((token for token in ("<blank>", "<pad>") if token in target), start)
    special = {"pad_id": padding, "start_id": start, "eos_id": names["eos_token"], "unk_id": names["unk_token"]}
    same_place(mapped, vocabularies, list(dict.fromkeys(special.values())))
    return {name: vocabularies["target"].index(token) for name, token in special.items()}


def text_side(
    side: str, vocabularies: Mapping[str, list[str]], names: Mapping[str, Any], path: Path, options: ImportOptions
) -> TextSide:
    """A tokenizer that was given or lies in the folder; else the text is tokens, or characters if all of them are."""
    tokens, unk = vocabularies[side], str(names["unk_token"])
    given = options.target_tokenizer if side == "target" and options.target_tokenizer else options.source_tokenizer
    if options.ids:
        return number_list(len(tokens))
    file = given or next((path / n for n in (f"{side}.spm", *_SENTENCEPIECE) if (path / n).is_file()), None)
    if file is not None:
        return read_tokenizer(file, tokens, len(tokens), unk)
    return token_list(tokens, "characters" if made_of_characters(tokens) else "words")


def with_ends(
    source: TextSide, tokens: Sequence[str], names: Mapping[str, Any], start: str, options: ImportOptions
) -> TextSide:
    """What stands around a source text."""
    bos, eos = (bool(options.config.get(f"source_add_{e}", names.get(f"add_source_{e}"))) for e in ("bos", "eos"))
    own = bos and names["bos_token"] != start  # not the token that ours would put there
    before = [token_id(tokens, names["bos_token"], "config.json")] if own else []
    if options.source_language is not None:
        before.append(token_id(tokens, options.source_language, "--source-language"))
    return replace(source, add_bos=bos and not own, add_eos=eos, prefix_ids=tuple(before))


def with_language(target: TextSide, tokens: Sequence[str], options: ImportOptions) -> TextSide:
    if options.target_language is None:
        return target
    return replace(target, prefix_ids=(token_id(tokens, options.target_language, "--target-language"),))
