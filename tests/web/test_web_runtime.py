"""The JavaScript runtime, tested by its own tests in Node and Chromium, with fixtures that Python makes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT, made_once
from tests.ort_bundle import write_ort_bundle
from tests.web.further_fixture import write_further
from tests.web.make_fixtures import write_fixtures
from tfexport.export import ExportOptions, export_bundle
from tfexport.package_web import package_web
from tfexport_train.checkpoint import Checkpoint

WEB = ROOT / "runtime" / "web"
TESTS = ROOT / "tests" / "web"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

Node = Callable[..., None]

# Most of this is a minute's work; a machine that does other things beside it may need several.
LONGEST = 800
pytestmark = [pytest.mark.timeout(LONGEST + 60), pytest.mark.usefixtures("packages")]


@pytest.fixture(scope="session")
def packages() -> None:
    """Node and what `npm ci` installs are not part of the Python environment."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not (WEB / "node_modules" / "typescript").is_dir():
        pytest.skip("the packages of the web runtime are not installed; run: npm ci --prefix runtime/web")


@pytest.fixture(scope="session")
def built(packages: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The compiled package; made once, also where several processes test."""

    def build(mark: Path) -> None:
        run(["npm", "run", "--silent", "build"], WEB, {})
        mark.touch()

    made_once(tmp_path_factory, "web-built", build)


@pytest.fixture(scope="session")
def node(
    built: None,
    tmp_path_factory: pytest.TempPathFactory,
    tiny_bundle: Path,
    tiny_fixed_bundle: Path,
    tiny_checkpoint: Checkpoint,
) -> Node:
    """Runs one file of tests, with all that these need."""

    def export(path: Path) -> None:
        """The growing form with attention, and ids of its own before and behind a text and before a translation."""
        source = replace(tiny_checkpoint.source, prefix_ids=(5, 6), suffix_ids=(7,))
        target = replace(tiny_checkpoint.target, prefix_ids=(8, 9))
        with_ids = replace(tiny_checkpoint, source=source, target=target)
        options = ExportOptions(operators="portable", attention=True, encoder_state=True, name="tiny")
        export_bundle(with_ids, path, options)

    def export_reproducible(path: Path) -> None:
        in_8_bits = ExportOptions(target="web", precision="int8", reproducible=True, name="tiny")
        export_bundle(
            tiny_checkpoint, path, replace(in_8_bits, attention=True, attention_layers=(0,), encoder_state=True)
        )

    fixtures = made_once(tmp_path_factory, "web-fixtures", write_fixtures)
    fixed = made_once(tmp_path_factory, "tiny-fixed-in-ort", lambda path: write_ort_bundle(tiny_fixed_bundle, path))
    portable = made_once(tmp_path_factory, "tiny-portable-ids", export)
    in_8_bits = made_once(tmp_path_factory, "tiny-reproducible", export_reproducible)
    further = made_once(
        tmp_path_factory, "web-further.json", lambda path: write_further((portable, fixed, in_8_bits), path)
    )
    site = made_once(tmp_path_factory, "web-site", lambda path: package_web(tiny_bundle, path))
    given = {
        "TFEXPORT_WEB_FIXTURES": str(fixtures),
        "TFEXPORT_WEB_BUNDLES": f"{tiny_bundle}:{portable}:{fixed}:{in_8_bits}",
        "TFEXPORT_WEB_ATTENTION": str(portable),
        "TFEXPORT_WEB_FURTHER": str(further),
        "TFEXPORT_WEB_SITE": str(site),
    }
    return lambda name: run(["node", "--test", "--test-reporter=spec", str(TESTS / name)], WEB, given)


def _on_all_cores() -> None:
    """A worker of the tests keeps to one core; threads of a page need more."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=LONGEST,
        preexec_fn=_on_all_cores if hasattr(os, "sched_setaffinity") else None,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "# SKIP" not in done.stdout, done.stdout[-6000:]


def test_types_of_package_page_and_react_native_screen_fit() -> None:
    run(["npm", "run", "--silent", "check"], WEB, {})


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.test.mjs",
        "search.test.mjs",
        "cache.test.mjs",
        "bundle.test.mjs",
        "attention.test.mjs",
        "encoder_states.test.mjs",
        "golden.test.mjs",
        "fixed.test.mjs",
        "translator.test.mjs",
        "react_native.test.mjs",
    ],
)
def test_in_node(node: Node, name: str) -> None:
    node(name)


def test_in_chromium(node: Node) -> None:
    if not any(map(shutil.which, BROWSERS)) and "CHROMIUM" not in os.environ:
        pytest.skip("no Chromium is installed, so the page is not tested; on Debian: apt-get install chromium")
    node("browser.test.mjs")


def test_the_package_is_small(built: None) -> None:
    import gzip

    shipped = [p for p in (WEB / "dist").rglob("*.js") if p.name not in {"node.js", "cli.js", "line_stream.js"}]
    size = sum(len(gzip.compress(path.read_bytes())) for path in shipped)
    assert size <= 60_000, f"{size} bytes gzipped without ONNX Runtime"


def test_the_lock_file_names_no_server() -> None:
    assert '"resolved"' not in (WEB / "package-lock.json").read_text(encoding="utf-8")
