"""`tfexport translate`: lines in, lines out."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, shell
from tfexport_runtime.line_stream import CHUNK_LINES
from tfexport_runtime.translator import Translator

SHORT = ("--max-length", "6")


@pytest.fixture(scope="module")
def translator(tiny_bundle: Path) -> Translator:
    return Translator(tiny_bundle)


def expected(translator: Translator, texts: list[str]) -> list[str]:
    """What the library gives, with what would end a line shown as a space."""
    options = translator.options({"max_length": 6})
    texts_out = [t.text for t in translator.translate(texts, options)]
    return [text.replace("\n", " ").replace("\r", " ") for text in texts_out]


def test_lines_keep_their_count_and_order(cli: Cli, tiny_bundle: Path, translator: Translator) -> None:
    texts = ["ein hund", "die grüne wiese am see", "ball", "ein hund"]
    result = cli("translate", tiny_bundle, *SHORT, stdin="\n".join(texts).encode() + b"\n")
    assert (result.status, result.err) == (0, "")
    assert result.out.split("\n") == [*expected(translator, texts), ""]


def test_empty_lines_keep_their_place(cli: Cli, tiny_bundle: Path, translator: Translator) -> None:
    result = cli("translate", tiny_bundle, *SHORT, stdin=b"\nein hund\n\n \t\nball\n\n")
    hund, ball = expected(translator, ["ein hund", "ball"])
    assert result.out.split("\n") == ["", hund, "", "", ball, "", ""]


def test_last_line_without_an_end_is_a_line(cli: Cli, tiny_bundle: Path, translator: Translator) -> None:
    result = cli("translate", tiny_bundle, *SHORT, stdin=b"ein hund\nball")
    assert result.out == "".join(line + "\n" for line in expected(translator, ["ein hund", "ball"]))


def test_no_input_gives_no_output(cli: Cli, tiny_bundle: Path) -> None:
    result = cli("translate", tiny_bundle)
    assert (result.status, result.out) == (0, "")


def test_windows_line_ends_and_a_byte_order_mark_are_not_text(
    cli: Cli, tiny_bundle: Path, translator: Translator
) -> None:
    result = cli("translate", tiny_bundle, *SHORT, stdin=b"\xef\xbb\xbfein hund\r\nball\r\n")
    assert result.out == "".join(line + "\n" for line in expected(translator, ["ein hund", "ball"]))


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\r"])
def test_only_a_line_feed_ends_a_line(cli: Cli, tiny_bundle: Path, separator: str) -> None:
    result = cli("translate", tiny_bundle, *SHORT, stdin=f"ein{separator}hund\n".encode())
    assert result.out.count("\n") == 1


def test_many_lines_come_out_as_if_each_were_alone(cli: Cli, tiny_bundle: Path, translator: Translator) -> None:
    words = ["ein", "kleiner", "hund", "läuft", "über", "die", "wiese"]
    texts = [" ".join(words[: 1 + i % len(words)]) for i in range(2 * CHUNK_LINES + 3)]
    result = cli("translate", tiny_bundle, *SHORT, stdin="\n".join(texts).encode() + b"\n")
    alone = {text: expected(translator, [text])[0] for text in set(texts)}
    assert result.out.split("\n")[:-1] == [alone[text] for text in texts]


def test_files_give_the_same_as_streams(cli: Cli, tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"ein hund\n\nball\n")
    streamed = cli("translate", tiny_bundle, *SHORT, stdin=b"ein hund\n\nball\n")
    result = cli("translate", tiny_bundle, *SHORT, "-i", tmp_path / "in.txt", "-o", tmp_path / "new" / "out.txt")
    assert (result.status, result.out, result.err) == (0, "", "")
    assert (tmp_path / "new" / "out.txt").read_text(encoding="utf-8") == streamed.out


def test_zip_gives_the_same_as_folder(cli: Cli, tiny_bundle: Path, tmp_path: Path, translator: Translator) -> None:
    from tfexport_runtime.archive import pack_zip

    pack_zip(tiny_bundle, tmp_path / "bundle.zip")
    result = cli("translate", tmp_path / "bundle.zip", *SHORT, stdin=b"ein hund\n")
    assert result.out == expected(translator, ["ein hund"])[0] + "\n"


def test_text_that_is_not_utf8_names_the_line(cli: Cli, tiny_bundle: Path) -> None:
    cli("translate", tiny_bundle, stdin=b"gut\nball \xff\n").failed_with(4, "line 2", "UTF-8", "0xff", "byte 6")


def test_bad_line_in_a_later_chunk_names_its_number(cli: Cli, tiny_bundle: Path, tmp_path: Path) -> None:
    lines = [b"ball"] * (CHUNK_LINES + 9) + [b"\xe4\xf6"]
    (tmp_path / "in.txt").write_bytes(b"\n".join(lines))
    out = tmp_path / "out.txt"
    result = cli("translate", tiny_bundle, "--max-length", "1", "-i", tmp_path / "in.txt", "-o", out)
    result.failed_with(4, "in.txt", f"line {CHUNK_LINES + 10}")
    assert [p.name for p in tmp_path.iterdir()] == ["in.txt"]


def test_failure_leaves_the_old_output_file(cli: Cli, tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("old", encoding="utf-8")
    cli("translate", tiny_bundle, "-o", tmp_path / "out.txt", stdin=b"\xff\n").failed_with(4, "line 1")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_line_beyond_the_limit_of_the_model_names_the_line(cli: Cli, tiny_bundle: Path) -> None:
    long = ("hund " * 80).encode()
    cli("translate", tiny_bundle, stdin=b"ball\n\n" + long + b"\n").failed_with(4, "line 3", "tokens")


def test_long_line_is_cut_with_a_warning_on_request(cli: Cli, tiny_bundle: Path) -> None:
    long = ("hund " * 80).encode()
    result = cli("translate", tiny_bundle, *SHORT, "--truncate-source", stdin=b"ball\n" + long + b"\n" + long)
    assert (result.status, result.out.count("\n")) == (0, 3)
    warned = result.err.splitlines()
    assert [w.partition(" was cut")[0] for w in warned] == ["tfexport: input, line 2", "tfexport: input, line 3"]


def test_scores_stand_before_the_text(cli: Cli, tiny_bundle: Path, translator: Translator) -> None:
    out = cli("translate", tiny_bundle, *SHORT, "--scores", stdin=b"ein hund\n").out
    best = translator.translate(["ein hund"], translator.options({"max_length": 6}))[0].best
    assert out.split("\t")[0] == f"{best.score:.4f}"


def test_n_best_prints_numbered_hypotheses_best_first(cli: Cli, tiny_bundle: Path) -> None:
    flags = ("--beam-size", "3", "--n-best", "3", "--scores")
    rows = [
        line.split("\t")
        for line in cli("translate", tiny_bundle, *SHORT, *flags, stdin=b"ball\nhund\n").out.splitlines()
    ]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "2", "2"]
    scores = [float(row[1]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert len({row[2] for row in rows[:3]}) == 3


def test_json_holds_what_the_library_gives(cli: Cli, tiny_bundle: Path, translator: Translator) -> None:
    out = cli("translate", tiny_bundle, *SHORT, "--json", "--beam-size", "2", "--n-best", "2", stdin=b"ball\n\n").out
    first, second = (json.loads(line) for line in out.splitlines())
    options = translator.options({"max_length": 6, "beam_size": 2, "n_best": 2})
    wanted = translator.translate(["ball"], options)[0].hypotheses
    assert first["line"] == 1
    assert [h["ids"] for h in first["hypotheses"]] == [list(h.ids) for h in wanted]
    assert [h["tokens"] for h in first["hypotheses"]] == [list(h.tokens) for h in wanted]
    assert [h["text"] for h in first["hypotheses"]] == [h.text for h in wanted]
    assert [h["truncated"] for h in first["hypotheses"]] == [h.truncated for h in wanted]
    assert [h["score"] for h in first["hypotheses"]] == pytest.approx([h.score for h in wanted])
    assert second == {"line": 2, "hypotheses": [{**second["hypotheses"][0], "text": "", "ids": [], "tokens": []}]}


def test_prefixes_begin_the_translations(cli: Cli, tiny_bundle: Path, tmp_path: Path, translator: Translator) -> None:
    (tmp_path / "prefix.txt").write_text("EIN HUND\n\n", encoding="utf-8")
    flags = ("--prefix", tmp_path / "prefix.txt")
    first, second = cli("translate", tiny_bundle, *SHORT, *flags, stdin=b"ball\nhund\n").out.split("\n")[:2]
    assert first.startswith("EIN HUND")
    assert second == expected(translator, ["hund"])[0]


@pytest.mark.parametrize("prefixes", ["one\n", "one\ntwo\nthree\n"])
def test_prefixes_must_be_as_many_as_lines(cli: Cli, tiny_bundle: Path, tmp_path: Path, prefixes: str) -> None:
    (tmp_path / "prefix.txt").write_text(prefixes, encoding="utf-8")
    out = tmp_path / "out.txt"
    flags = (*SHORT, "--prefix", tmp_path / "prefix.txt", "-o", out)
    cli("translate", tiny_bundle, *flags, stdin=b"ball\nhund\n").failed_with(4, "prefix.txt", "lines")
    assert not out.exists()


def test_contradicting_options_are_refused_even_without_input(cli: Cli, tiny_bundle: Path) -> None:
    cli("translate", tiny_bundle, "--n-best", "5", "--beam-size", "2").failed_with(2, "n_best", "beam_size")


def test_answer_comes_before_the_next_line_is_sent(tiny_bundle: Path) -> None:
    command = [sys.executable, "-m", "tfexport", "translate", str(tiny_bundle), *SHORT, "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        for number in (1, 2):
            process.stdin.write(b"ball\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["line"] == number
        process.stdin.close()
        assert process.wait(60) == 0


def test_progress_is_shown_on_a_terminal_and_not_mixed_into_the_output(tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("ball\n" * 9, encoding="utf-8")
    command = [sys.executable, "-m", "tfexport", "translate", str(tiny_bundle), *SHORT, "-i", str(tmp_path / "in.txt")]
    terminal, stderr = pty.openpty()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, check=False, timeout=120)
    os.close(stderr)
    shown = os.read(terminal, 2**16)
    os.close(terminal)
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 9)
    assert b"translating" in shown
    assert b"9/9" in shown


def test_reader_that_leaves_ends_it_quietly(tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("ball\n" * 30_000, encoding="utf-8")
    command = f"tfexport translate {tiny_bundle} --max-length 1 -i in.txt | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = shell(command, tmp_path)
    assert done.returncode != 0
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""


def test_full_disk_behind_standard_output_is_one_line(tiny_bundle: Path, tmp_path: Path) -> None:
    done = shell(f"echo ball | tfexport translate {tiny_bundle} > /dev/full", tmp_path)
    assert done.returncode == 4
    assert done.stderr.decode().splitlines() == ["tfexport: no space left on the disk; free some or write elsewhere"]


def test_device_as_output_is_written_and_stays_a_device(cli: Cli, tiny_bundle: Path) -> None:
    assert cli("translate", tiny_bundle, *SHORT, "-o", "/dev/null", stdin=b"ball\n").status == 0
    assert Path("/dev/null").is_char_device()


def test_translating_brings_neither_torch_nor_onnx(tiny_bundle: Path) -> None:
    code = (
        "import sys\nfrom tfexport.__main__ import main\n"
        f"status = main(['translate', {str(tiny_bundle)!r}])\n"
        "heavy = {'torch', 'onnx', 'matplotlib', 'yaml', 'rich'} & {n.partition('.')[0] for n in sys.modules}\n"
        "sys.exit(status or sorted(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=b"ball\n", capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1
