"""Writes what the JavaScript runtime is compared with: tokenizers with ids, and searches with results, from Python.

`python tests/web/make_fixtures.py FOLDER`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.web.search_fixture import search_cases
from tests.web.tokenizer_fixture import write_tokenizers


def write_fixtures(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizers(folder / "tokenizers")
    (folder / "search.json").write_text(json.dumps(search_cases()), encoding="utf-8")


if __name__ == "__main__":
    write_fixtures(Path(sys.argv[1]))
