"""Where a multilingual model wants to read which languages it translates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tfexport.checkpoints.hugging_face.folder import Folder
from tfexport.checkpoints.imported import ImportOptions
from tfexport_train.errors import CheckpointError


@dataclass(frozen=True)
class LanguageForm:
    """How a family of models is told."""

    written: str  # the token of a language, {} being its code
    code: str  # regular expression of a code
    source: Literal["prefix", "suffix"] | None  # place of the source's language in the encoder's input
    target: Literal["prefix", "start", "source prefix"]  # place of the target's


_FORMS = {
    "m2m100": LanguageForm("__{}__", r"[a-z]{2,3}", "prefix", "prefix"),
    "nllb": LanguageForm("{}", r"[a-z]{3}_[A-Z][a-z]{3}", "prefix", "prefix"),
    "nllb, older": LanguageForm("{}", r"[a-z]{3}_[A-Z][a-z]{3}", "suffix", "prefix"),
    "mbart": LanguageForm("{}", r"[a-z]{2}_[A-Z]{2}", "suffix", "start"),
    "mbart50": LanguageForm("{}", r"[a-z]{2}_[A-Z]{2}", "prefix", "prefix"),
    "marian": LanguageForm(">>{}<<", r"[^<>]+", None, "source prefix"),
}


@dataclass(frozen=True)
class Languages:
    """Ids around the texts, of languages and of a forced first token."""

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    target_prefix: tuple[int, ...] = ()
    start: int | None = None  # what the decoder reads first, where that is a language


def languages(folder: Folder, options: ImportOptions, tokens: Mapping[str, int] | None) -> Languages:
    """Raises CheckpointError, with a few codes, where languages are needed and not given."""
    forced = folder.special("forced_bos_token_id", -1)
    form = _form(folder, tokens or {})
    if form is None:
        _refuse_needless(folder, options)
        return Languages(target_prefix=(forced,) if forced >= 0 else ())
    said = forced if form.target == "prefix" else folder.special("decoder_start_token_id", -1)
    target = _id(folder, form, options.target_language, tokens or {})
    if target is None and form.target != "source prefix" and said >= 0:
        target = said  # trained further for one language
    source = _id(folder, form, options.source_language, tokens or {}) if form.source else None
    missing = ["--source-language"] if form.source and source is None else []
    missing += ["--target-language"] if target is None else []
    if missing:
        raise CheckpointError(
            f"{folder.path}: the model knows several languages: give {' and '.join(missing)}, "
            f"such as {_some_codes(form, tokens or {})}, or the id of its token"
        )
    return Languages(
        source_prefix=_at(form.source == "prefix", source) + _at(form.target == "source prefix", target),
        source_suffix=_at(form.source == "suffix", source),
        target_prefix=_at(form.target == "prefix", target),
        start=target if form.target == "start" else None,
    )


def _form(folder: Folder, tokens: Mapping[str, int]) -> LanguageForm | None:
    model_type, tokenizer = folder.config.text("model_type"), folder.settings("tokenizer_config.json")
    named = tokenizer.text("tokenizer_class")
    if model_type == "m2m_100":
        if named.startswith("Nllb") or ("eng_Latn" in tokens and "__en__" not in tokens):
            return _FORMS["nllb, older" if tokenizer.flag("legacy_behaviour", False) else "nllb"]
        return _FORMS["m2m100"]
    if model_type == "mbart":
        end = folder.special("eos_token_id", 2)
        is_50 = named.startswith("MBart50") or folder.special("decoder_start_token_id", -1) == end
        return _FORMS["mbart50" if is_50 else "mbart"]
    if model_type == "marian" and len(_codes(_FORMS["marian"], tokens)) > 1:
        return _FORMS["marian"]
    return None


def _id(folder: Folder, form: LanguageForm, language: str | None, tokens: Mapping[str, int]) -> int | None:
    """Of a code, of a token as it is written, or of the id itself."""
    if language is None:
        return None
    written = next((t for t in (form.written.format(language), language) if t in tokens), None)
    if written is not None:
        return tokens[written]
    if language.isascii() and language.isdigit():
        return int(language)
    raise CheckpointError(f"{folder.path}: no language {language!r}; there are {_some_codes(form, tokens)}")


def _codes(form: LanguageForm, tokens: Mapping[str, int]) -> list[str]:
    before, after = (re.escape(part) for part in form.written.split("{}"))
    pattern = re.compile(f"{before}({form.code}){after}")
    return sorted(match.group(1) for token in tokens if (match := pattern.fullmatch(token)))


def _some_codes(form: LanguageForm, tokens: Mapping[str, int], count: int = 6) -> str:
    codes = _codes(form, tokens)
    if not codes:
        return "(no list of them lies in the folder)"
    usual = [code for code in codes if re.match(r"(en|de|fr|es|eng|deu|fra|spa)(_|$)", code)]
    shown = [*usual, *(code for code in codes if code not in usual)][:count]
    return ", ".join(shown) + (f" and {len(codes) - len(shown)} more" if len(codes) > len(shown) else "")


def _at(here: bool, token: int | None) -> tuple[int, ...]:
    return (token,) if here and token is not None else ()


def _refuse_needless(folder: Folder, options: ImportOptions) -> None:
    given = {"--source-language": options.source_language, "--target-language": options.target_language}
    needless = [flag for flag, value in given.items() if value is not None]
    if needless:
        raise CheckpointError(f"{folder.path}: the model has no tokens for languages; leave out {', '.join(needless)}")
