"""The Markdown of the project: its links lead somewhere, on a code host, and the reference lists all public names."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import bitsnap

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [*ROOT.glob("*.md"), *(path for folder in ("docs", "gpu", "src") for path in (ROOT / folder).rglob("*.md"))]

_FENCED = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)[^`](?:.|\n)*?\1")
_LINK = re.compile(r"\]\(([^()\s]+)\)")


@cache
def anchors(document: Path) -> set[str]:
    """The anchors of the headings of a document, as code hosts and the site make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*)$", _FENCED.sub("", document.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
        found.add(slug)
    return found


def test_links_lead_to_files_and_headings() -> None:
    wrong = []
    links = 0
    for document in DOCUMENTS:
        text = _CODE.sub("", _FENCED.sub("", document.read_text()))
        for target in _LINK.findall(text):
            if re.match(r"https?:|mailto:", target):
                continue
            links += 1
            path, _, anchor = target.partition("#")
            place = (document.parent / path).resolve() if path else document
            if not place.exists() or (anchor and anchor not in anchors(place)):
                wrong.append(f"{document.relative_to(ROOT)}: {target}")
    assert links > 200
    assert not wrong


def test_the_reference_lists_all_public_names() -> None:
    text = (ROOT / "python/bitsnap/__init__.py").read_text()
    public = {f"bitsnap.{name}" for name in re.findall(r"\b(\w+) as \1\b", text)}
    listed = re.findall(r"^::: (\S+)$", "".join(p.read_text() for p in (ROOT / "docs/api").glob("*.md")), re.MULTILINE)
    assert all(hasattr(bitsnap, name.removeprefix("bitsnap.")) for name in public)
    assert len(public) > 50
    assert public <= set(listed)
    assert len(listed) == len(set(listed))
