"""A translator as a web page: which files make it up, and a folder of them that any static server can serve."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tfexport.errors import ExportError
from tfexport_runtime.bundle import MANIFEST_NAME, Bundle, read_bundle
from tfexport_runtime.errors import UnavailableError

# The web package beside this one: it is part of the repository, not of the Python distribution.
WEB_FOLDER = Path(__file__).resolve().parent.parent / "runtime" / "web"

ENGINE = ("ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
NOT_FOR_PAGES = {"node.js", "cli.js", "line_stream.js", "react_native.js"}
PAGE = ("index.html", "page.css", "icon.svg", "site.webmanifest")
LISTING = "site.json"  # what the service worker keeps for visits without a network

HEADERS_FILE = "_headers"  # some hosts of static files read it; others need these headers in their own settings
ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}

SiteFiles = Mapping[str, Path | bytes]
"""Path in the site, with slashes -> the file, or its content."""


def package_web(bundle: Path, output: Path, force: bool = False) -> int:
    """Writes the site into a folder. Returns its size in bytes. Raises BundleError, UnavailableError, ExportError."""
    files = site_files(read_bundle(bundle))
    if output.exists() and not _is_replaceable(output, force):
        raise ExportError(f"{output}: exists and is not such a site; choose another folder, or allow it with --force")
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        for name, content in files.items():
            _write(temporary / name, content)
        if output.exists():
            shutil.rmtree(output)
        temporary.rename(output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sum(path.stat().st_size for path in output.rglob("*") if path.is_file())


def site_files(bundle: Bundle) -> SiteFiles:
    """Everything of the site: page, runtime, engine, bundle. Raises UnavailableError where the page is not built."""
    web = WEB_FOLDER
    page: dict[str, Path | bytes] = {name: web / "page" / name for name in PAGE}
    runtime = web / "dist"
    for path in sorted(runtime.rglob("*.js")):
        name = path.relative_to(runtime).as_posix()
        if name not in NOT_FOR_PAGES and name != "page/service_worker.js":
            page[f"runtime/{name}"] = path
    for name in ENGINE:
        page[f"ort/{name}"] = web / "node_modules" / "onnxruntime-web" / "dist" / name
    worker = runtime / "page" / "service_worker.js"
    _check_built([worker, *(path for path in page.values() if isinstance(path, Path))], web)
    version = _version(page, worker)
    page["service_worker.js"] = _service_worker(worker, version)
    page[LISTING] = json.dumps({"version": version, "files": sorted(page)}, indent=1).encode()
    page[HEADERS_FILE] = "".join(["/*\n", *(f"  {name}: {value}\n" for name, value in ISOLATION.items())]).encode()
    names = [MANIFEST_NAME, *bundle.manifest.files]
    return page | {f"bundle/{name}": bundle.folder / name for name in names}


def _check_built(paths: list[Path], web: Path) -> None:
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise UnavailableError(f"{missing[0]} is missing: the page is not built; run in {web}: npm ci && npm run build")


def _version(page: SiteFiles, worker: Path) -> str:
    """Another one for every change of any file, so that browsers do not mix two versions."""
    digest = hashlib.sha256(worker.read_bytes())
    for name in sorted(page):
        digest.update(name.encode() + b"\0" + _bytes(page[name]))
    return digest.hexdigest()[:16]


def _service_worker(path: Path, version: str) -> bytes:
    """A classic script, which every browser takes: without the mark of a module that the compiler leaves."""
    text = path.read_text(encoding="utf-8").replace("@VERSION@", version)
    return text.replace("export {};\n", "").encode()


def _is_replaceable(output: Path, force: bool) -> bool:
    if not output.is_dir():
        return False
    return force or (output / LISTING).is_file() or not any(output.iterdir())


def _bytes(content: Path | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def _write(target: Path, content: Path | bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        target.write_bytes(content)
    else:
        shutil.copyfile(content, target)
