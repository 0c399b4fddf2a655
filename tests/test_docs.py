"""Every document of the project: its links, its anchors and the files that it names exist."""

import contextlib
import io
import itertools
import re
import runpy
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch
from markdown_it import MarkdownIt
from torch import nn

from tests.test_project import ROOT, tracked_files

MARKDOWN = MarkdownIt("commonmark").enable("table")

# A file of the project named in the text, `hw/config.py`; the folders are those at the top.
FILE_NAME = re.compile(
    r"(?:hw|rtl_gen|compiler|golden|algorithms|emulator|verif|synth|examples|runtime|perf|boards|tests|docs|scripts)"
    r"(?:/\w+)*/[\w.-]+\.(?:py|md|v|svg|png|json|lib)"
)


def inline_tokens(text: str) -> list:
    """Return the inline tokens of a document, each with the line of its block."""
    return [
        (token.map[0] + 1 if token.map else 0, child)
        for token in MARKDOWN.parse(text)
        for child in token.children or ()
    ]


def slug(heading: str) -> str:
    """Return the anchor that Git hosts and the site make of a heading's text."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def anchors(path: Path) -> set[str]:
    """Return all anchors of a document; a repeated heading gets a number."""
    tokens = MARKDOWN.parse(path.read_text())
    found, times = set(), {}
    for opening, inline in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            name = slug("".join(child.content for child in inline.children))
            number = times[name] = times.get(name, -1) + 1
            found.add(f"{name}-{number}" if number else name)
    return found


def link_fault(path: Path, target: str) -> str | None:
    """Return what is wrong with a link of the document ``path``, None if nothing is."""
    if re.match(r"[a-z]+:", target):
        return None if target.startswith(("https:", "mailto:")) else "neither a path nor https"
    name, _, anchor = unquote(target).partition("#")
    if name.startswith("/"):
        return "absolute path"
    file = (path.parent / name).resolve() if name else path
    if not file.exists() or not file.is_relative_to(ROOT):
        return "no such file in the project"
    if anchor and (file.suffix != ".md" or anchor not in anchors(file)):
        return f"no heading '{anchor}'"
    return None


def link_faults(path: Path, text: str) -> list[str]:
    """Return all faults of a document's links and pictures, each with its line."""
    faults = []
    for line, token in inline_tokens(text):
        if token.type in ("link_open", "image"):
            target = token.attrGet("href" if token.type == "link_open" else "src")
            if fault := link_fault(path, target):
                faults.append(f"{path.relative_to(ROOT)}:{line}: {target}: {fault}")
    return faults


DOCUMENTS = [path for path in tracked_files() if path.suffix == ".md"]


def test_a_broken_link_is_found():
    page = ROOT / "docs/glossary.md"
    text = (
        "[right](../README.md) [wrong](nowhere.md)\n\n[right](#hardware) [wrong](#nope)\n\n"
        "[right](index.md#this-site) [wrong](index.md#that) `[code](nowhere.md)`\n\n"
        "![wrong](nothing.svg) [wrong](/etc/hosts) [wrong](../../) [wrong](http://example.com)\n"
    )
    found = [fault.split(": ", 1) for fault in link_faults(page, text)]
    assert [(place[-1], fault.split(":")[0]) for place, fault in found] == [
        ("1", "nowhere.md"),
        ("3", "#nope"),
        ("5", "index.md#that"),
        ("7", "nothing.svg"),
        ("7", "/etc/hosts"),
        ("7", "../../"),
        ("7", "http"),
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(path):
    faults = link_faults(path, path.read_text())
    assert not faults, "\n".join(faults)


def test_headings_have_the_anchors_of_git_hosts():
    assert slug("Cycles of ADA-GP") == "cycles-of-ada-gp"
    assert slug("What is rounded & stored") == "what-is-rounded--stored"
    assert slug("`BATCH` (x, y)") == "batch-x-y"


def test_links_of_the_site():
    """What leads out of docs/ on a Git host leads to copies within the site."""
    hooks = runpy.run_path(str(ROOT / "scripts/site_hooks.py"))
    text = (
        "[a](../README.md#use-it) [b](vector.md) [c](../hw/__init__.py) [d](../synth/results)\n"
        "```\n[e](../README.md)\n```\n[f](https://example.org/x) [g](#here)\n"
    )
    assert hooks["rewrite"](text, "docs/loss.md") == text.replace(
        "[a](../README.md", "[a](repository/README.md"
    ).replace("../hw/__init__.py", "repository/hw/__init__.py.md").replace(
        "../synth/results", "repository/synth/results/files.md"
    )
    text = "![a](docs/architecture.svg) [b](CONTRIBUTING.md) [c](docs/loss.md)"
    assert hooks["rewrite"](text, "README.md") == (
        "![a](../architecture.svg) [b](CONTRIBUTING.md) [c](../loss.md)"
    )
    assert hooks["REMOTE"].search('<script src="https://example.org/x.js">')
    assert not hooks["REMOTE"].search('<a href="https://example.org">x</a><img src="x.svg">')


def test_every_page_is_within_reach():
    text = (ROOT / "docs/index.md").read_text()
    linked = {
        (ROOT / "docs" / token.attrGet("href").partition("#")[0]).resolve()
        for _, token in inline_tokens(text)
        if token.type == "link_open"
    }
    pages = sorted((ROOT / "docs").glob("*.md"))
    missing = [page.name for page in pages if page not in linked and page.name != "index.md"]
    assert not missing, f"docs/index.md names no {', '.join(missing)}"


def test_named_files_exist():
    """Files named in code, `hw/config.py`, exist: documents follow when a file moves."""
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {token.content}"
        for path in DOCUMENTS
        if path.name != "CHANGELOG.md"
        for line, token in inline_tokens(path.read_text())
        if token.type == "code_inline"
        and FILE_NAME.fullmatch(token.content)
        and not (ROOT / token.content).is_file()
    ]
    assert not faults, "\n".join(faults)


EXAMPLE = ROOT / "docs/example.md"


def fences(text: str) -> list:
    """Return (line, language, content) of the code blocks of a document."""
    return [
        (token.map[0] + 1, token.info.strip(), token.content)
        for token in MARKDOWN.parse(text)
        if token.type == "fence"
    ]


def run_blocks(name: str, text: str, titles=("",)) -> list[str]:
    """Execute a document's Python blocks, one after the other in one namespace.

    A block with a title, ``python title="waveform"``, is left out unless ``titles`` has it.
    Returns the differences between what each printed and the text block that follows it.
    """
    namespace, printed, faults = {"__name__": "__example__"}, None, []
    for line, info, content in fences(text):
        language, _, title = info.partition(" ")
        if title.removeprefix("title=").strip('"') not in titles:
            continue
        if language == "python":
            if printed:
                faults.append(f"{name}:{line}: the block before it printed, but shows nothing")
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                # Line numbers of the document, in tracebacks.
                exec(compile("\n" * line + content, name, "exec"), namespace)
            printed = out.getvalue()
        elif language == "text":
            shown, actual = content.splitlines(), (printed or "").splitlines()
            for number, pair in enumerate(itertools.zip_longest(shown, actual), line + 1):
                if pair[0] != pair[1]:
                    faults.append(f"{name}:{number}: shows {pair[0]!r}, printed was {pair[1]!r}")
                    break
            printed = None
    if printed:
        faults.append(f"{name}: the last block printed, but shows nothing")
    return faults


def test_a_wrong_example_is_found():
    text = "```python\nprint(1)\nprint(2)\n```\n\n```text\n1\n{}\n```\n"
    assert run_blocks("page", text.format(2)) == []
    assert run_blocks("page", text.format(3)) == ["page:8: shows '3', printed was '2'"]
    assert run_blocks("page", "```python\nprint(1)\n```\n") != []
    titled = '```python title="t"\nprint(1)\n```\n\n```text title="t"\n2\n```\n'
    assert run_blocks("page", titled) == []
    assert run_blocks("page", titled, ("", "t")) != []


def test_the_example_prints_what_it_shows(request):
    """Without --long, all but the waveform, for which the simulator is compiled once more."""
    titles = ("", "waveform") if request.config.getoption("long") else ("",)
    faults = run_blocks("docs/example.md", EXAMPLE.read_text(), titles)
    assert not faults, "\n".join(faults)


#: Pages whose blocks are executed by tests of their own.
OWN_TESTS = ("docs/example.md", "docs/tutorial.md")


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in DOCUMENTS
        if "```python" in path.read_text() and str(path.relative_to(ROOT)) not in OWN_TESTS
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_examples_run(path, tmp_path, monkeypatch):
    """Python blocks of a page, in order. README's is about a network of the reader's own."""
    monkeypatch.chdir(tmp_path)
    given = {}
    if path.name == "README.md":
        torch.manual_seed(1)
        images, labels = torch.rand(4, 1, 4, 4), torch.arange(4) % 2
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
        given = {"model": model, "images": images}
        given["train_loader"] = given["test_loader"] = [(images, labels)]
    blocks = [(line, code) for line, language, code in fences(path.read_text())
              if language == "python"]  # fmt: skip
    for line, code in blocks:
        exec(compile("\n" * line + code, path.name, "exec"), given)


def test_every_page_is_in_the_navigation_of_the_site():
    """mkdocs, which only ``make docs`` installs, refuses a site where one is missing."""
    named = set(re.findall(r"([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert not pages - named
    assert not {page for page in named - pages if not page.startswith("repository/")}
