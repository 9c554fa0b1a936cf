"""A page of the documentation: its links, anchors, code blocks and inline code, with their lines."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.conftest import ROOT


class Block(msgspec.Struct, frozen=True):
    """A fenced block: the line of its fence, its language or "", and its content."""

    line: int
    language: str
    text: str


class Span(msgspec.Struct, frozen=True):
    """A link, a picture or inline code, and the first line of its paragraph."""

    line: int
    text: str


class Page:
    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        self._tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)

    def blocks(self) -> list[Block]:
        return [
            Block(_line(token), token.info.strip(), token.content) for token in self._tokens if token.type == "fence"
        ]

    def targets(self) -> Iterator[Span]:
        """Yield the targets of links and pictures."""
        for line, token in self._inline():
            target = token.attrs.get("href") or token.attrs.get("src")
            if target:
                yield Span(line, str(target))

    def code(self) -> Iterator[Span]:
        for line, token in self._inline():
            if token.type == "code_inline":
                yield Span(line, token.content)

    def anchors(self) -> set[str]:
        """Return the anchors of the headings, in the form used by common Markdown viewers."""
        slugs: set[str] = set()
        seen: Counter[str] = Counter()
        for heading, content in zip(self._tokens, self._tokens[1:], strict=False):
            if heading.type != "heading_open":
                continue
            slug = re.sub(r"[^\w\- ]", "", content.content.lower()).replace(" ", "-")
            slugs.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
        return slugs

    def _inline(self) -> Iterator[tuple[int, Token]]:
        line = 1
        for token in self._tokens:
            line = _line(token) if token.map else line
            for child in token.children or ():
                yield line, child


def files(*patterns: str) -> list[Path]:
    """Return the project's files, by default all, without those that git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).exists()]


def read(path: Path) -> Page:
    return Page(path, path.read_text(encoding="utf-8"))


def _line(token: Token) -> int:
    return 1 + (token.map[0] if token.map else 0)
