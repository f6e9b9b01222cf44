"""Turns the files of one source package into clean documents, a reader per file format.

Knows HTML, manual pages, Markdown, plain text, Python source, WordNet, the factbook's JSON and
the King James text. Does not know which packages exist, nor anything of splits or tokens.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from lxml import etree, html

Document = tuple[str, str]
"""Name inside the package, text with paragraphs separated by blank lines."""

_DROP = {
    "script",
    "style",
    "nav",
    "header",
    "footer",
    "aside",
    "form",
    "button",
    "svg",
    "head",
    "noscript",
    "iframe",
    "select",
    "textarea",
    "img",
    "math",
}
_BLOCK = {
    "p",
    "div",
    "section",
    "article",
    "main",
    "body",
    "table",
    "ul",
    "ol",
    "dl",
    "blockquote",
    "figure",
    "figcaption",
    "hr",
    "details",
    "summary",
    "fieldset",
    "address",
    "thead",
    "tbody",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "dt",
    "dd",
    "tr",
    "li",
}
_SKIP_CLASS = re.compile(
    r"(?<!with)(?<!with-)sidebar|navheader|navfooter|headerlink|breadcrumb|navbar|footer|toctree|contents|toc(set|view|sub|list)?\b|navset|"
    r"related|navigation|searchbox|edit-link|viewcode|linenos|lineno|nav-|menu|linkback|head-|foot-"
)
_SKIP_PAGE = re.compile(
    r"genindex|modindex|changelog|search\.html|release-?notes|news|whatsnew|copyright|print\.html|"
    r"(^|/)(index|toc|contents|all|hierarchy|annotated|classes|functions_)[^/]*\.html$|"
    r"/(_sources|_static|javadoc|gapi|api-generated)/|-source\.html|bookindex|SUMMARY",
    re.IGNORECASE,
)
_MAIN = (
    "//div[@role='main']",
    "//main",
    "//article",
    "//div[@class='body']",
    "//div[@id='content']",
    "//div[@class='document']",
    "//body",
)
_ASCII = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": "--",
        "\u2026": "...",
        "\u00a0": " ",
        "\u2022": "-",
        "\u00b6": "",
        "\u200b": "",
        "\u2212": "-",
        "\u2010": "-",
        "\u2011": "-",
        "\u2192": "->",
        "\uf0c1": "",
        "\ufeff": "",
        "\u00ad": "",
        "\u00ab": '"',
        "\u00bb": '"',
        "\u2032": "'",
    }
)
MIN_ASCII = 0.97
"""Below this share of ASCII characters a paragraph is foreign text or symbols and is dropped."""
MAX_PARAGRAPH = 4000
"""Longer paragraphs are tables and dumps; characters."""

VERSES = 5
"""Verses to a paragraph: single verses make the text read like a list."""


def clean(text: str) -> str:
    """Straight quotes, no trailing blanks, at most one blank line, no foreign paragraphs."""
    text = text.translate(_ASCII).expandtabs(4)
    text = re.sub(r"[ \r]+\n", "\n", text)
    kept = []
    for paragraph in re.split(r"\n{2,}", text):
        ascii_chars = sum(c < "\x7f" for c in paragraph)
        if not paragraph.strip() or ascii_chars < MIN_ASCII * len(paragraph):
            continue
        if len(paragraph) <= MAX_PARAGRAPH:
            kept.append(paragraph)
    return "\n\n".join(kept).strip("\n")


def _walk(node: html.HtmlElement, out: list[str]) -> None:
    """Appends the text below `node`; a block becomes lines of its own, `pre` stays as it is."""
    tag = node.tag
    if not isinstance(tag, str) or tag in _DROP:
        return
    if tag != "body" and _SKIP_CLASS.search(f"{node.get('class') or ''} {node.get('id') or ''}"):
        return
    if tag == "pre":
        out.append("\n\n" + "".join(node.itertext()).strip("\n") + "\n\n")
        return
    block = tag in _BLOCK
    if block:
        out.append("\n" if tag in ("tr", "dd") else "\n- " if tag == "li" else "\n\n")
    if node.text:
        out.append(re.sub(r"\s+", " ", node.text))
    for child in node:
        _walk(child, out)
        if tag in ("tr",):
            out.append("  ")
        if child.tail:
            out.append(re.sub(r"\s+", " ", child.tail))
    if tag == "br":
        out.append("\n")
    if block:
        out.append("\n" if tag in ("tr", "dt", "li") else "\n\n")


def html_text(data: bytes) -> str:
    """The readable part of a page: the main container, without navigation."""
    try:
        tree = html.fromstring(data)
    except (etree.ParserError, ValueError):
        return ""
    for query in _MAIN:
        found = tree.xpath(query)
        if found:
            break
    else:
        return ""
    out: list[str] = []
    _walk(found[0], out)
    text = "".join(out)
    text = re.sub(r"\n- \s*\n+", "\n- ", text)
    return clean(re.sub(r"(?m)^ (?=\S)", "", text))


def markdown_text(text: str) -> str:
    """Markdown without links' targets, comments, front matter and HTML tags."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->|<[^>\n]{1,200}>", "", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return clean(text)


def unwrap(text: str) -> str:
    """Joins the lines of each paragraph: text that was wrapped at a fixed width."""
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", text.replace("\r", ""))]
    # A speech may come as one paragraph: cut after a sentence, every 600 to 700 characters.
    return clean(
        "\n\n".join(re.sub(r"(.{600,}?[.!?]) (?=[A-Z])", r"\1\n\n", p) for p in paragraphs)
    )


def _read(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def read_html(root: Path, path: Path) -> Iterator[Document]:
    name = str(path.relative_to(root))
    if path.suffix in (".html", ".htm") and not _SKIP_PAGE.search(name):
        yield name, html_text(path.read_bytes())


def read_man(root: Path, path: Path) -> Iterator[Document]:
    """Manual pages through mandoc's HTML writer, which does not wrap lines."""
    if not re.search(r"/man/man\w+/[^/]+\.gz$", str(path)):
        return
    page = subprocess.run(
        ["mandoc", "-T", "html", "-O", "fragment"],
        input=_read(path),
        capture_output=True,
        check=False,
    ).stdout
    text = html_text(b"<html><body>" + page + b"</body></html>")
    yield str(path.relative_to(root)), text


def read_markdown(root: Path, path: Path) -> Iterator[Document]:
    if re.search(r"\.(md|markdown)(\.gz)?$", path.name):
        yield str(path.relative_to(root)), markdown_text(_read(path).decode("utf-8", "replace"))


def read_text(root: Path, path: Path) -> Iterator[Document]:
    if re.search(r"(?<!/data)\.txt$", path.name) and path.name != "data.txt":
        yield str(path.relative_to(root)), unwrap(_read(path).decode("utf-8", "replace"))


def read_python(root: Path, path: Path) -> Iterator[Document]:
    """Modules that parse, without tests, vendored code and data tables."""
    name = str(path.relative_to(root))
    if path.suffix != ".py" or re.search(r"test|idlelib|lib2to3|_vendor|locale/|encodings/", name):
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return
    text = clean(re.sub(r"\A(#.*\n)+", "", text))
    lines = text.split("\n")
    if len(text) < 200_000 and sum(len(line) for line in lines) / len(lines) < 70:
        yield name, text


def read_wordnet(root: Path, path: Path) -> Iterator[Document]:
    """The glosses, grouped by 40 so that a document has some length."""
    kinds = {
        "data.noun": "noun",
        "data.verb": "verb",
        "data.adj": "adjective",
        "data.adv": "adverb",
    }
    if path.name not in kinds:
        return
    entries = []
    for line in path.read_text().splitlines():
        if line[:2].strip() == "" or "|" not in line:
            continue
        head, gloss = line.split("|", 1)
        fields = head.split()
        words = [fields[4 + 2 * i].replace("_", " ") for i in range(int(fields[3], 16))]
        entries.append(f"{', '.join(words[:3])} ({kinds[path.name]}): {gloss.strip()}.")
    for i in range(0, len(entries), 40):
        yield f"{path.name}/{i}", clean("\n\n".join(entries[i : i + 40]))


def read_factbook(root: Path, path: Path) -> Iterator[Document]:
    if path.suffix != ".json":
        return
    parts: list[str] = []

    def visit(key: str, value: object) -> None:
        if isinstance(value, dict):
            for k, v in value.items():
                visit(k if k != "text" else key, v)
        elif isinstance(value, str) and len(value) > 60:
            plain = re.sub(r"<[^>]+>", " ", value)
            parts.append(f"{key}: {' '.join(plain.split())}")

    visit("", json.loads(path.read_text(encoding="utf-8")))
    yield str(path.relative_to(root)), clean("\n\n".join(parts))


def read_kjv(root: Path, path: Path) -> Iterator[Document]:
    """Chapters through the `bible` command of the package bible-kjv, verse numbers removed."""
    if path.name != "bible.data":
        return
    text = subprocess.run(
        ["bible", "-l", "9999", "gen1:1-rev22:21"], capture_output=True, text=True, check=True
    ).stdout
    chapters = re.split(r"\n(?=[1-3]?\s?[A-Z][A-Za-z ]+ \d+\n)", text)
    for chapter in chapters:
        title, _, body = chapter.strip().partition("\n")
        verses = [" ".join(verse.split()) for verse in re.split(r"\n\s+\d+ ", "\n" + body)]
        groups = [" ".join(verses[i : i + VERSES]) for i in range(0, len(verses), VERSES)]
        yield title, clean(title + "\n\n" + "\n\n".join(groups))


READERS = {
    "html": read_html,
    "man": read_man,
    "markdown": read_markdown,
    "text": read_text,
    "python": read_python,
    "wordnet": read_wordnet,
    "factbook": read_factbook,
    "kjv": read_kjv,
}
