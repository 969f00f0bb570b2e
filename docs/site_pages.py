"""A hook of MkDocs: the README is the first page, and pages that are named become links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parent.parent / "README.md"


def on_page_markdown(markdown: str, page: Any, **context: Any) -> str:
    if page.file.src_uri == "index.md":
        markdown = README.read_text(encoding="utf-8").replace("](docs/", "](")
    return re.sub(r"`docs/(\w+)\.md`", r"[\1](\1.md)", markdown)
