"""The C++ library as others use it: from C, Java and Apple's languages, and installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.cpp.built_runtime import BUILD, DEPENDENCIES, SOURCE, Built, build_step
from tfexport_runtime.session import SessionOptions
from tfexport_runtime.translator import Translator

pytestmark = pytest.mark.timeout(1800)  # a first build takes a minute or two


def test_the_example_in_c_translates(built: Built, tiny_bundle: Path) -> None:
    program = BUILD / "tfexport-example-c"
    command = [program, tiny_bundle, "ein hund", '{"beam_size": 2}']
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=built.environment, check=True)
    python = Translator(tiny_bundle, SessionOptions(threads=1))
    best = python.translate(["ein hund"], python.options({"beam_size": 2}))[0].best
    assert done.stdout == f"{best.text}\t{best.score:.4f}\n"


def test_an_installed_library_is_found_by_cmake_and_pkg_config(built: Built, tmp_path: Path) -> None:
    build_step("cmake", "--install", BUILD, "--prefix", tmp_path / "installed")
    user = tmp_path / "user"
    user.mkdir()
    (user / "main.cpp").write_text(
        "#include <tfexport/translator.h>\nint main() { return tfexport::version()[0] == '0' ? 0 : 1; }\n"
    )
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(user CXX)\nfind_package(tfexport 0.1 REQUIRED)\n"
        "add_executable(user main.cpp)\ntarget_link_libraries(user PRIVATE tfexport::runtime)\n"
    )
    build_step("cmake", "-S", user, "-B", user / "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}")
    build_step("cmake", "--build", user / "build")
    subprocess.run([user / "build" / "user"], env=built.environment, check=True)
    described = next((tmp_path / "installed").rglob("tfexport.pc"))
    assert "-ltfexport" in described.read_text(encoding="utf-8")
    if shutil.which("pkg-config"):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(described.parent)}
        command = ["pkg-config", "--variable=includedir", "tfexport"]
        found = subprocess.run(
            command, capture_output=True, encoding="utf-8", env=environment, check=True
        ).stdout.strip()
        assert (Path(found) / "tfexport" / "tfexport.h").exists()


JAVA = """
import dev.tfexport.Translator;
public class Run {
    public static void main(String[] given) {
        try (Translator translator = new Translator(given[0], "{\\"threads\\": 1}")) {
            System.out.println(translator.translate(new String[] {"ein hund", ""}, given[1])[0]);
            try {
                translator.translate(new String[] {"x"}, "{\\"beam_size\\": 0}");
            } catch (IllegalArgumentException error) {
                System.out.println(error.getMessage());
            }
        }
    }
}
"""


def test_the_class_for_apple_systems_is_right_in_its_syntax() -> None:
    if shutil.which("clang++") is None:
        pytest.skip("no clang here")
    checks = ["-fsyntax-only", "-std=c++17", "-fobjc-arc", "-fobjc-runtime=macosx-13", "-Wall", "-Wextra", "-Werror"]
    include = [f"-I{SOURCE / 'include'}", f"-I{ROOT / 'tests' / 'cpp' / 'stubs'}"]
    build_step("clang++", "-x", "objective-c++", *checks, *include, SOURCE / "examples" / "objc" / "TFXTranslator.mm")


def test_the_jni_shim_translates_in_java(built: Built, tiny_bundle: Path, tmp_path: Path) -> None:
    compiler = shutil.which("javac")
    headers = Path(compiler).resolve().parent.parent / "include" if compiler else tmp_path
    if not (headers / "jni.h").exists():
        pytest.skip("no Java development kit here")
    shim, library = SOURCE / "examples" / "jni", tmp_path / "libtfexport_jni.so"
    include = [f"-I{folder}" for folder in (SOURCE / "include", headers, headers / "linux")]
    link = [BUILD / "libtfexport.a", f"-L{DEPENDENCIES / 'lib'}", "-lonnxruntime", "-lsentencepiece"]
    build_step(
        "c++",
        "-std=c++17",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Werror",
        *include,
        shim / "tfexport_jni.cpp",
        "-o",
        library,
        *link,
    )
    (tmp_path / "Run.java").write_text(JAVA, encoding="utf-8")
    build_step("javac", "-d", tmp_path, shim / "dev" / "tfexport" / "Translator.java", tmp_path / "Run.java")
    command = ["java", f"-Djava.library.path={tmp_path}", "-cp", tmp_path, "Run", tiny_bundle, '{"beam_size": 2}']
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=built.environment, check=True)
    python = Translator(tiny_bundle, SessionOptions(threads=1))
    best = python.translate(["ein hund"], python.options({"beam_size": 2}))[0].text
    assert done.stdout.splitlines()[0] == best
    assert done.stdout.splitlines()[1].startswith("beam_size must be at least 1, not 0")
