"""The packaged site and its server."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfexport.errors import ExportError
from tfexport.package_web import ENGINE, PAGE, package_web, site_files
from tfexport.serve_web import open_server
from tfexport_runtime.bundle import read_bundle
from tfexport_runtime.errors import UnavailableError


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the built web package."""
    folder = tmp_path / "web"
    files = [f"page/{name}" for name in PAGE] + [f"node_modules/onnxruntime-web/dist/{name}" for name in ENGINE]
    for name in [*files, "dist/worker.js", "dist/cli.js", "dist/page/main.js"]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    (folder / "dist/page/service_worker.js").write_text('const VERSION = "@VERSION@";\nexport {};\n', encoding="utf-8")
    monkeypatch.setattr("tfexport.package_web.WEB_FOLDER", folder)
    return folder


def test_a_site_holds_the_page_the_engine_and_the_whole_bundle(web: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    size = package_web(tiny_bundle, site)
    names = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    bundle = {f"bundle/{path.name}" for path in tiny_bundle.iterdir()}
    page = {*PAGE, *(f"ort/{name}" for name in ENGINE), "runtime/worker.js", "runtime/page/main.js"}
    assert names == bundle | page | {"service_worker.js", "site.json", "_headers"}
    assert size == sum((site / name).stat().st_size for name in names)
    assert set(json.loads((site / "site.json").read_text())["files"]) == page | {"service_worker.js"}


def test_another_page_has_another_version_and_the_same_one_the_same(web: Path, tiny_bundle: Path) -> None:
    bundle = read_bundle(tiny_bundle)
    first, again = site_files(bundle), site_files(bundle)
    (web / "page" / "page.css").write_text("changed", encoding="utf-8")
    changed = site_files(bundle)
    assert first["service_worker.js"] == again["service_worker.js"] != changed["service_worker.js"]
    assert b"export" not in first["service_worker.js"]  # type: ignore[operator]


def test_a_site_is_replaced_and_another_folder_is_not(web: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    site, other = tmp_path / "site", tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine", encoding="utf-8")
    package_web(tiny_bundle, site)
    package_web(tiny_bundle, site)
    with pytest.raises(ExportError, match="is not such a site"):
        package_web(tiny_bundle, other)
    assert (other / "thesis.txt").read_text(encoding="utf-8") == "mine"


def test_a_page_that_is_not_built_says_how_to_build_it(web: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    (web / "dist" / "page" / "service_worker.js").unlink()
    with pytest.raises(UnavailableError, match="npm ci && npm run build"):
        package_web(tiny_bundle, tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.fixture(params=[True, False], ids=["isolated", "plain"])
def served(web: Path, tiny_bundle: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, bool]]:
    with open_server(read_bundle(tiny_bundle), 0, request.param) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", request.param
        server.shutdown()
        thread.join()


def test_the_server_sends_every_file_with_its_type_and_the_headers_for_threads(
    served: tuple[str, bool], tiny_bundle: Path
) -> None:
    address, isolated = served
    expected = {
        "/": ("text/html; charset=utf-8", b"page/index.html"),
        "/runtime/worker.js?x=1": ("text/javascript; charset=utf-8", b"dist/worker.js"),
        f"/ort/{ENGINE[1]}": ("application/wasm", f"node_modules/onnxruntime-web/dist/{ENGINE[1]}".encode()),
        "/bundle/weights.bin": ("application/octet-stream", (tiny_bundle / "weights.bin").read_bytes()),
    }
    for path, (kind, content) in expected.items():
        with urllib.request.urlopen(address + path, timeout=10) as response:
            assert (response.headers["Content-Type"], response.read()) == (kind, content)
            assert (response.headers["Cross-Origin-Embedder-Policy"] == "require-corp") == isolated


@pytest.mark.parametrize(
    "path", ["/bundle/../../web/dist/cli.js", "/runtime/cli.js", "/bundle/", "/etc/passwd", "/%2e%2e/x"]
)
def test_the_server_sends_nothing_that_is_not_listed(served: tuple[str, bool], path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(served[0] + path, timeout=10)
    assert caught.value.code == 404
    caught.value.close()
