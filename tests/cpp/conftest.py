"""Builds the C++ runtime for the tests of this folder."""

from __future__ import annotations

import os

import pytest
from filelock import FileLock

from tests.cpp.built_runtime import BUILD, DEPENDENCIES, SOURCE, Built, build_step, missing


@pytest.fixture(scope="session")
def built() -> Built:
    """Built once, and again only as far as something has changed."""
    if absent := list(missing()):
        pytest.skip("the C++ runtime is not built here; missing: " + ", ".join(absent))
    BUILD.parent.mkdir(exist_ok=True)
    with FileLock(BUILD.with_suffix(".lock")):
        chosen = [
            "-DTFEXPORT_BUILD_TESTS=ON",
            "-DTFEXPORT_BUILD_EXAMPLES=ON",
            f"-DONNXRUNTIME_ROOT={DEPENDENCIES}",
            f"-DSENTENCEPIECE_ROOT={DEPENDENCIES}",
            f"-DCMAKE_PREFIX_PATH={DEPENDENCIES / 'usr'}",
        ]
        build_step("cmake", "-S", SOURCE, "-B", BUILD, *chosen)
        build_step("cmake", "--build", BUILD)
    libraries = os.pathsep.join(filter(None, [str(DEPENDENCIES / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    return Built(BUILD / "tfexport-cli", {**os.environ, "LD_LIBRARY_PATH": libraries})
