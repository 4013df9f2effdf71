"""Optimum's layout in the hands of those that it is for: Optimum itself, and transformers.js under Node.

They are not among what the tests install. `make bench-peers` brings Optimum, `npm install --ignore-scripts --prefix
benchmarks/web` brings transformers.js; TFEXPORT_PEERS (a Python) and TFEXPORT_TRANSFORMERS_JS (the folder of its
package) name others. One family is tried, with TFEXPORT_FAMILIES=all all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.optimum_folder import ORIGINALS, optimum_folder
from tests.conftest import ROOT, made_once

HERE = Path(__file__).parent
PEERS = Path(os.environ.get("TFEXPORT_PEERS") or ROOT / ".venv-peers" / "bin" / "python")
TRANSFORMERS = Path(
    os.environ.get("TFEXPORT_TRANSFORMERS_JS") or ROOT / "benchmarks/web/node_modules/@huggingface/transformers"
)
ALL = (
    "marian-2-2", "marian-3-1", "bart-2-2", "bart-3-1", "mbart-2-2", "mbart50-3-1", "m2m100-2-2", "nllb-3-1",
    "pegasus-2-2", "pegasus-3-1", "t5-2-2", "t5-3-1", "flan-t5-3-1", "mt5-2-2",
)  # fmt: skip
CASES = ALL if os.environ.get("TFEXPORT_FAMILIES") == "all" else ("t5-2-2",)


def expected_of(case: str) -> dict[str, Any]:
    return dict(json.loads((ORIGINALS / case / "expected.json").read_text(encoding="utf-8")))


def usual_heads(case: str) -> bool:
    """Optimum takes d_model / num_heads for the size of a head, whatever d_kv says, and fails where it is another."""
    config = json.loads((ORIGINALS / case / "config.json").read_text(encoding="utf-8"))
    return "d_kv" not in config or config["d_kv"] * config["num_heads"] == config["d_model"]


OPTIMUM_CASES = tuple(case for case in CASES if usual_heads(case))
SCRIPT_CASES = tuple(case for case in CASES if "pegasus" not in case)  # which transformers.js does not know


def results(
    tmp_path_factory: pytest.TempPathFactory, name: str, command: Sequence[object], cases: Sequence[str]
) -> dict[str, Any]:
    """Case -> search -> rows of ids, as the program wrote them."""
    folders = [optimum_folder(tmp_path_factory, case) for case in cases]

    def run(result: Path) -> None:
        words = [str(word) for word in (*command, result, *folders)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
        done = subprocess.run(words, capture_output=True, encoding="utf-8", timeout=280, env=environment)
        assert done.returncode == 0, done.stderr

    found = json.loads(made_once(tmp_path_factory, name, run).read_text(encoding="utf-8"))
    return {case: found[str(folder)] for case, folder in zip(cases, folders, strict=True)}


@pytest.fixture(scope="module")
def optimum(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return results(tmp_path_factory, "optimum.json", [PEERS, HERE / "generate_with_optimum.py"], OPTIMUM_CASES)


@pytest.fixture(scope="module")
def transformers_js(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = ["node", HERE / "generate_with_transformers.mjs", TRANSFORMERS]
    return results(tmp_path_factory, "transformers_js.json", command, SCRIPT_CASES)


def without_ends(rows: Sequence[Sequence[int]], case: str) -> list[list[int]]:
    """Without the start token, the forced first ones, and what comes with the end."""
    config = json.loads((ORIGINALS / case / "config.json").read_text(encoding="utf-8"))
    prefix, eos = expected_of(case)["prefix_ids"], config["eos_token_id"]
    assert all(list(row[1 : 1 + len(prefix)]) == prefix for row in rows)
    cut = [list(row[1 + len(prefix) :]) for row in rows]
    return [row[: row.index(eos)] if eos in row else row for row in cut]


@pytest.mark.skipif(not PEERS.exists(), reason="needs Optimum: make bench-peers")
@pytest.mark.parametrize("case", OPTIMUM_CASES)
def test_optimum_generates_the_tokens_of_the_original(case: str, optimum: dict[str, Any]) -> None:
    expected = expected_of(case)
    assert without_ends(optimum[case]["greedy"], case) == expected["greedy"]
    beams = without_ends(optimum[case]["beam"], case)
    assert beams == [row for rows in expected["beam"] for row in rows]


@pytest.mark.skipif(
    not TRANSFORMERS.exists() or shutil.which("node") is None,
    reason="needs Node and transformers.js: npm install --ignore-scripts --prefix benchmarks/web",
)
@pytest.mark.parametrize("case", SCRIPT_CASES)
def test_transformers_js_generates_the_tokens_of_the_original(case: str, transformers_js: dict[str, Any]) -> None:
    assert without_ends(transformers_js[case]["greedy"], case) == expected_of(case)["greedy"]
