"""The manifest, and its schema: what one refuses, so does the other."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest

from tests.runtime.bundle_fixture import VOCAB, example_manifest, make_bundle
from tfexport_runtime.bundle import Manifest, write_manifest
from tfexport_runtime.errors import BundleError
from tfexport_runtime.manifest import GRAPH_SUFFIXES
from tfexport_runtime.options import TranslationOptions

SCHEMA = json.loads((Path(__file__).parents[2] / "runtime" / "bundle.schema.json").read_text(encoding="utf-8"))
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return example_manifest(make_bundle(tmp_path_factory.mktemp("manifest") / "bundle"))


def refusal(data: str | bytes) -> str:
    with pytest.raises(BundleError) as caught:
        Manifest.from_json(data)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("bundle.json: ")
    return message


def changed(example: Manifest, change: Change) -> dict[str, Any]:
    values = copy.deepcopy(example.to_dict())
    change(values)
    return values


def schema_takes(values: object) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(values)


def test_round_trip(example: Manifest) -> None:
    text = example.to_json()
    again = Manifest.from_json(text)
    assert again.to_dict() == example.to_dict()
    assert again.to_json() == text
    assert Manifest.from_json(text.encode("utf-8")) == again


def test_first_fields_say_what_it_is(example: Manifest) -> None:
    assert list(example.to_dict())[:2] == ["format", "format_version"]


def test_schema_is_valid_and_takes_what_is_written(example: Manifest) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(example.to_json()))


def test_schema_describes_every_field() -> None:
    undescribed: list[str] = []

    def walk(node: object, where: str) -> None:
        if not isinstance(node, dict):
            return
        for name, child in node.get("properties", {}).items():
            if "description" not in child and "description" not in SCHEMA["$defs"].get(_target(child), {}):
                undescribed.append(f"{where}.{name}")
        for name, child in node.items():
            walk(child, f"{where}.{name}")

    walk(SCHEMA, "")
    assert undescribed == []


def test_schema_and_dataclasses_name_the_same_fields() -> None:
    def compare(kind: type[Any], node: dict[str, Any], ours: set[str]) -> None:
        node = SCHEMA["$defs"][_target(node)] if "$ref" in node else node
        assert node["additionalProperties"] is False, kind
        assert set(node["properties"]) == ours, kind
        required = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
        assert set(node["required"]) - {"format", "format_version"} == required, kind
        for name, hint in get_type_hints(kind).items():
            part, inner = node["properties"][name], hint
            while get_args(inner) and not is_dataclass(inner):
                inner = get_args(inner)[-1] if get_args(inner)[-1] is not ... else get_args(inner)[0]
                part = part.get("items", part)
            if is_dataclass(inner) and "additionalProperties" not in part:
                compare(inner, part, {f.name for f in fields(inner)})

    compare(Manifest, SCHEMA, {f.name for f in fields(Manifest)} | {"format", "digest"})
    graph = SCHEMA["properties"]["graphs"]
    assert set(graph["properties"]) == {"encoder", "decoder", "search"}
    assert SCHEMA["properties"]["graph_format"]["enum"] == list(GRAPH_SUFFIXES)
    options = {f.name for f in fields(TranslationOptions)} - {"callback"}
    assert set(SCHEMA["properties"]["generation"]["properties"]) == options


BOTH_REFUSE: dict[str, Change] = {
    "unknown field": lambda m: m.update(extra=1),
    "unknown field deep down": lambda m: m["graphs"]["encoder"]["inputs"][0].update(extra=1),
    "missing field": lambda m: m.pop("weights"),
    "missing field deep down": lambda m: m["source"]["tokenizer"].pop("kind"),
    "other format": lambda m: m.update(format="other"),
    "newer version": lambda m: m.update(format_version=2),
    "version 0": lambda m: m.update(format_version=0),
    "version as text": lambda m: m.update(format_version="1"),
    "text for a number": lambda m: m["model"].update(d_model="4"),
    "fraction for a number": lambda m: m["model"].update(d_model=4.5),
    "true for a number": lambda m: m["model"].update(d_model=True),
    "zero size": lambda m: m["model"].update(num_heads=0),
    "huge size": lambda m: m["model"].update(d_ff=2**40),
    "negative id": lambda m: m["source"].update(pad_id=-1),
    "number for a flag": lambda m: m["source"].update(add_eos=1),
    "null": lambda m: m.update(opset=None),
    "list for an object": lambda m: m.update(cache=[]),
    "object for a list": lambda m: m["target"].update(never_generated={}),
    "number for a list of ids": lambda m: m["source"].update(suffix_ids=2),
    "text in a list of ids": lambda m: m["target"].update(never_generated=["0"]),
    "unknown tokenizer": lambda m: m["target"]["tokenizer"].update(kind="morse"),
    "unknown cache": lambda m: m["cache"].update(form="other"),
    "unknown type": lambda m: m["graphs"]["decoder"]["outputs"][0].update(type="float"),
    "negative axis": lambda m: m["graphs"]["decoder"]["outputs"][0].update(shape=[-1]),
    "fraction as axis": lambda m: m["graphs"]["decoder"]["outputs"][0].update(shape=[1.5]),
    "no inputs": lambda m: m["graphs"]["decoder"].update(inputs=[]),
    "third graph": lambda m: m["graphs"].update(other=m["graphs"]["encoder"]),
    "missing graph": lambda m: m["graphs"].pop("decoder"),
    "graph file with another ending": lambda m: m["graphs"]["encoder"].update(file="encoder.ort"),
    "graph file of another format": lambda m: m.update(graph_format="ort"),
    "unknown graph format": lambda m: m.update(graph_format="tflite"),
    "a pair where one graph is due": lambda m: m.update(graph_format="single"),
    "text for a list of files": lambda m: m.update(weights="weights.bin"),
    "upper-case digest": lambda m: m["files"]["weights.bin"].update(sha256="A" * 64),
    "short digest": lambda m: m["files"]["weights.bin"].update(sha256="a" * 63),
    "negative file size": lambda m: m["files"]["weights.bin"].update(bytes=-1),
    "no files": lambda m: m.update(files={}),
    "unknown option": lambda m: m["generation"].update(beams=4),
    "callback": lambda m: m["generation"].update(callback=None),
    "option of another type": lambda m: m["generation"].update(beam_size="4"),
    "option out of range": lambda m: m["generation"].update(top_p=1.5),
    "unreasonable beam": lambda m: m["generation"].update(beam_size=10**9),
    "unknown penalty": lambda m: m["generation"].update(length_penalty="other"),
    "parity as text": lambda m: m.update(parity="fine"),
    "empty producer": lambda m: m.update(producer={}),
}


@pytest.mark.parametrize("name", BOTH_REFUSE)
def test_schema_and_reader_refuse_the_same(name: str, example: Manifest) -> None:
    values = changed(example, BOTH_REFUSE[name])
    assert not schema_takes(values)
    refusal(json.dumps(values))


PATH_TRICKS = [
    "",
    ".",
    "..",
    "../x",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "C:x",
    "C:\\x",
    "\\\\host\\x",
    "x\0",
    "x\n",
    ".hidden",
    "~",
    "a b",
    "é",
    "x" * 129,
]


@pytest.mark.parametrize("name", [*PATH_TRICKS, "bundle.json", "Bundle.JSON"])
def test_listed_names_are_plain(name: str, example: Manifest) -> None:
    values = changed(example, lambda m: m["files"].update({name: m["files"]["weights.bin"]}))
    assert "files" in refusal(json.dumps(values))
    if name != "x\n":  # `$` of Python's patterns matches before a last newline
        assert not schema_takes(values)


@pytest.mark.parametrize("name", PATH_TRICKS)
def test_named_files_are_plain(name: str, example: Manifest) -> None:
    for change in (
        lambda m: m.update(weights=[name]),
        lambda m: m["source"]["tokenizer"].update(file=name),
        lambda m: m["graphs"]["encoder"].update(file=name),
    ):
        refusal(json.dumps(changed(example, change)))


def make_fixed(m: dict[str, Any], rows: int = 2, **lengths: int) -> None:
    """Two inputs whose axes are numbers; lengths: those that are not the model's."""
    source, target = (lengths.get(name, m["model"][f"max_{name}_length"]) for name in ("source", "target"))
    m["cache"]["form"] = "fixed"
    ids = {"name": "input_ids", "type": "int32", "shape": [1, source]}
    keys = {"name": "past_key_values.0.decoder.key", "type": "float32", "shape": [rows, 1, target, 4]}
    for graph, tensor in (("encoder", ids), ("decoder", keys)):
        m["graphs"][graph].update(inputs=[tensor], outputs=[{**tensor, "name": "y"}])


READER_REFUSES: dict[str, tuple[Change, str]] = {
    "weights not listed": (lambda m: m.update(weights=["other.bin"]), "weights[0] other.bin is not listed"),
    "graph not listed": (lambda m: m["graphs"]["decoder"].update(file="d.onnx"), "decoder.file d.onnx is not listed"),
    "tokenizer not listed": (lambda m: m["target"]["tokenizer"].update(file="t.spm"), "t.spm is not listed"),
    "one file of two kinds": (lambda m: m["target"]["tokenizer"].update(kind="words"), "two kinds"),
    "id beyond the vocabulary": (lambda m: m["source"].update(unk_id=VOCAB), f"source.unk_id {VOCAB} is outside"),
    "source prefix beyond": (lambda m: m["source"].update(prefix_ids=[VOCAB]), "source.prefix_ids holds ids"),
    "source suffix beyond": (lambda m: m["source"].update(suffix_ids=[VOCAB]), "source.suffix_ids holds ids"),
    "target prefix beyond": (lambda m: m["target"].update(prefix_ids=[VOCAB]), "target.prefix_ids holds ids"),
    "forbidden id beyond": (lambda m: m["target"].update(never_generated=[VOCAB]), "never_generated holds ids"),
    "no end": (lambda m: m["target"].update(never_generated=[2]), "nothing could end"),
    "suppressed id beyond": (lambda m: m["generation"].update(suppress_tokens=[VOCAB]), "suppress_tokens"),
    "n_best beyond beam": (lambda m: m["generation"].update(n_best=5), "n_best 5 needs a beam_size"),
    "fixed with an axis that varies": (lambda m: m["cache"].update(form="fixed"), "cache.form is fixed, so every axis"),
    "fixed, another source length": (lambda m: make_fixed(m, source=9), "max_source_length is"),
    "fixed, another target length": (lambda m: make_fixed(m, target=9), "max_target_length is"),
    "fixed, an empty tensor": (lambda m: make_fixed(m, rows=0), "has 0"),
    "two names for one file": (
        lambda m: m["files"].update({"WEIGHTS.bin": m["files"]["weights.bin"]}),
        "upper and lower case",
    ),
}


@pytest.mark.parametrize("name", READER_REFUSES)
def test_contradictions_are_refused(name: str, example: Manifest) -> None:
    change, message = READER_REFUSES[name]
    assert message in refusal(json.dumps(changed(example, change)))


def test_numbers_for_every_axis_are_the_fixed_form(example: Manifest) -> None:
    values = changed(example, make_fixed)
    assert Manifest.from_json(json.dumps(values)).cache.form == "fixed"
    assert schema_takes(values)


def test_all_problems_are_named_at_once(example: Manifest) -> None:
    def spoil(m: dict[str, Any]) -> None:
        m.update(extra=1, opset="18")
        m["model"].update(other=1)
        del m["weights"], m["cache"]["form"]

    message = refusal(json.dumps(changed(example, spoil)))
    for part in ("unknown field extra", "unknown field model.other", "missing field weights", "cache.form", "opset"):
        assert part in message


def test_long_lists_of_problems_are_cut(example: Manifest) -> None:
    message = refusal(json.dumps(changed(example, lambda m: m.update({f"x{i}": 1 for i in range(100)}))))
    assert "and 94 more" in message
    assert len(message) < 500


def test_newer_version_says_what_to_do(example: Manifest) -> None:
    # A newer manifest may have fields that are not known yet; the version is what matters.
    values = changed(example, lambda m: m.update(format_version=2, novelty=True))
    assert "bundle format 2 is newer than this runtime reads (1); upgrade tfexport_runtime" in refusal(
        json.dumps(values)
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "not the manifest"),
        (b"null", "not the manifest"),
        (b'{"format": "tfexport-bundle", "format": "tfexport-bundle"}', "key 'format' appears twice"),
        (b'{"a": {"b": 1, "b": 1}}', "key 'b' appears twice"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "beyond the range"),
        (b'{"a": "\\ud800"}', "not UTF-8"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON"),
        (b"[" * 100000, "nested too deep"),
        (b"\xef\xbb\xbf{}", "not JSON"),
    ],
)
def test_text_that_is_no_manifest(data: bytes, message: str) -> None:
    assert message in refusal(data)


def test_large_text_is_refused_before_parsing() -> None:
    assert "larger than 16 MiB" in refusal(b" " * (16 * 2**20 + 1))


def test_manifest_that_contradicts_itself_is_not_written(example: Manifest, tmp_path: Path) -> None:
    broken = Manifest(**{f.name: getattr(example, f.name) for f in fields(example)} | {"weights": ("other.bin",)})
    with pytest.raises(BundleError, match=r"other\.bin is not listed"):
        write_manifest(tmp_path, broken)
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_json_lacks_are_not_written(example: Manifest) -> None:
    values = {f.name: getattr(example, f.name) for f in fields(example)} | {"parity": {"difference": float("nan")}}
    with pytest.raises(BundleError, match="cannot be written"):
        Manifest(**values).to_json()


def _target(node: dict[str, Any]) -> str:
    return str(node.get("$ref", "")).removeprefix("#/$defs/")
