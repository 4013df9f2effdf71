from __future__ import annotations

from pathlib import Path

import pytest

from tfexport_runtime.tokenizer import TokenListTokenizer
from tfexport_train.config import EncoderDecoderConfig
from tfexport_train.corpus import encode_pairs, load_corpus, read_parallel
from tfexport_train.errors import ConfigError, DataError
from tfexport_train.settings import DataSettings


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_two_files_are_paired_by_line_and_a_tab_is_text(tmp_path: Path) -> None:
    files = [written(tmp_path, "a", "one\ttwo\n\nthree\r\n"), written(tmp_path, "b", "eins\nzwei\ndrei")]
    assert read_parallel(files) == [("one\ttwo", "eins"), ("", "zwei"), ("three", "drei")]


def test_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    files = [written(tmp_path, "a", "x\u2028y\x0bz\x85w\n"), written(tmp_path, "b", "1\n")]
    assert read_parallel(files) == [("x\u2028y\x0bz\x85w", "1")]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert read_parallel([written(tmp_path, "t", b"\xef\xbb\xbfa\tb\n")]) == [("a", "b")]


def test_unequal_line_counts_are_refused_with_both(tmp_path: Path) -> None:
    files = [written(tmp_path, "a", "1\n2\n3\n"), written(tmp_path, "b", "1\n2\n")]
    with pytest.raises(DataError, match=r"a has 3 lines but .*b has 2"):
        read_parallel(files)


@pytest.mark.parametrize(("line", "tabs"), [("no tab", 0), ("a\tb\tc", 2)])
def test_a_tsv_line_needs_one_tab(tmp_path: Path, line: str, tabs: int) -> None:
    with pytest.raises(DataError, match=rf"t.tsv, line 2: .*found {tabs} TABs"):
        read_parallel([written(tmp_path, "t.tsv", f"a\tb\n{line}\n")])


def test_text_that_is_not_utf8_is_refused_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"latin.txt, line 3: not UTF-8"):
        read_parallel([written(tmp_path, "latin.txt", b"a\tb\nc\td\ngr\xfcn\tx\n")])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing.txt: cannot be read: No such file"):
        read_parallel([tmp_path / "nothing.txt"])


def test_an_empty_part_is_refused(tmp_path: Path) -> None:
    full, empty = written(tmp_path, "full.tsv", "a\tb\n"), written(tmp_path, "empty.tsv", "")
    with pytest.raises(DataError, match=r"data.valid holds no lines"):
        load_corpus(DataSettings(train=(full,), valid=(empty,)))
    with pytest.raises(ConfigError, match="no `data`"):
        load_corpus(None)


def test_long_and_empty_pairs_are_dropped_and_counted() -> None:
    tokens = TokenListTokenizer("\n".join(["<pad>", "<s>", "</s>", "<unk>", *"abc"]).encode(), 3, " ")
    config = EncoderDecoderConfig(7, 7, d_model=8, num_heads=1, max_positions=4)
    pairs = [("a b c", "c"), ("a b c a", "c"), ("a", "c c c c"), ("", "a"), ("a", " "), ("a", "b b b")]
    encoded = encode_pairs(pairs, tokens, tokens, config)
    assert [s.tolist() for s in encoded.sources] == [[4, 5, 6, 2], [4, 2]]
    assert [t.tolist() for t in encoded.targets] == [[1, 6, 2], [1, 5, 5, 5, 2]]
    assert (encoded.too_long, encoded.empty) == (2, 2)


def test_real_text_with_a_tab_inside_is_read_whole(data_folder: Path) -> None:
    pairs = read_parallel([data_folder / "multi30k/train.en", data_folder / "multi30k/train.de"])
    assert len(pairs) == 29_000
    assert sum("\t" in target for _, target in pairs) == 1
