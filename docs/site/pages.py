"""The pages of the site that aren't in docs/: the README is its first page, the changelog its last. A hook of
mkdocs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
HOMES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository's root, and what they are called on the site."""


def on_files(files: Files, config: Any) -> Files:
    """Add them, with their links to docs/ as the site has them."""
    for name, home in HOMES.items():
        text = (ROOT / name).read_text().replace("](docs/", "](").replace("](CHANGELOG.md", "](changelog.md")
        files.append(File.generated(config, home, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links from docs/ to these files."""
    return re.sub(r"\]\(\.\./(README|CHANGELOG)\.md", lambda found: f"]({HOMES[found[1] + '.md']}", markdown)


def on_post_page(output: str, **_: Any) -> None:
    """Refuse a page that its reader's browser would have to fetch something for from another host."""
    found = re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="?(?:https?:)?//[^>]*>', output)
    if found:
        raise PluginError(f"loaded from another host: {', '.join(found)}")
