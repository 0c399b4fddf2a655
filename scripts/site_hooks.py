"""Hook of mkdocs: links that leave docs/ lead to copies of those files within the site.

On a Git host ``[text](../hw/formats.py)`` opens the file. The site has docs/ alone, so this hook
adds what its pages link to: documents as pages under ``repository/``, sources as pages with line
numbers, folders as lists, everything else as it is.
Only mkdocs calls the functions that import it, so a test can do without.
"""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Documents outside docs/ that the navigation names.
ALWAYS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")

#: Files that become pages of code, with the name of their language.
LANGUAGES = {".py": "python", ".v": "verilog", ".toml": "toml", ".sh": "sh"}

LINK = re.compile(r"(?<=\]\()(?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?(?=\))")
#: What a browser would fetch from elsewhere.
REMOTE = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^\s\"'>]*"
)
FENCE = re.compile(r"^\s*(```|~~~)")


def place(path: str) -> str:
    """Return where a file or folder of the repository lies in the site, as a source of mkdocs."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"repository/{path}/files.md"
    suffix = ".md" if Path(path).suffix in LANGUAGES else ""
    return f"repository/{path}{suffix}"


def links(markdown: str, page: str) -> list[tuple[int, int, str]]:
    """Return (begin, end, path) of each link of ``page`` to a file, with its path from the root."""
    found, offset, fenced = [], 0, False
    for line in markdown.splitlines(keepends=True):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            for match in LINK.finditer(line):
                target = match["target"]
                if "://" not in target and not target.startswith(("mailto:", "/")):
                    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
                    begin, end = match.span("target")
                    found.append((offset + begin, offset + end, path))
        offset += len(line)
    return found


def rewrite(markdown: str, page: str) -> str:
    """Return the text of ``page`` with the links of the site; paths are those of the project."""
    here = posixpath.dirname(place(page))
    for begin, end, path in reversed(links(markdown, page)):
        if (ROOT / path).exists():
            link = posixpath.relpath(place(path), here or ".")
            markdown = markdown[:begin] + link + markdown[end:]
    return markdown


def linked_files() -> list[str]:
    """Return the paths of all files outside docs/ that belong to the site, each once."""
    pages = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]
    waiting, seen = [*pages, *ALWAYS], set()
    while waiting:
        path = waiting.pop()
        if path in seen or path.startswith("../") or not (ROOT / path).exists():
            continue
        seen.add(path)
        if path.endswith(".md"):
            waiting += [target for *_, target in links((ROOT / path).read_text(), path)]
        elif (ROOT / path).is_dir():
            waiting += [f"{path}/{file.name}" for file in (ROOT / path).iterdir() if file.is_file()]
    return sorted(path for path in seen if not path.startswith("docs/"))


def content(path: str) -> str | None:
    """Return the page that stands for a file of the repository, None for one that is copied."""
    file = ROOT / path
    heading = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    if file.is_dir():
        names = sorted(entry.name for entry in file.iterdir() if entry.is_file())
        return heading + "".join(
            f"- [{name}]({posixpath.basename(place(f'{path}/{name}'))})\n" for name in names
        )
    if language := LANGUAGES.get(file.suffix):
        return f'{heading}~~~~~~ {{ .{language} linenums="1" }}\n{file.read_text()}~~~~~~\n'
    return None


def on_files(files, config):
    """Add the files that docs/ links to."""
    from mkdocs.structure.files import File

    for path in linked_files():
        text = content(path)
        source = {"content": text} if text is not None else {"abs_src_path": str(ROOT / path)}
        files.append(File.generated(config, place(path), **source))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turn links of documents into links of the site."""
    source = page.file.src_uri
    path = source.removeprefix("repository/")
    if path == source:
        path = f"docs/{source}"
    # Pages that show a file or a folder have no such path, and their links are right.
    return rewrite(markdown, path) if (ROOT / path).is_file() else markdown


def on_post_page(output, page, config):
    """Refuse a page that is not complete without a network."""
    from mkdocs.exceptions import PluginError

    if remote := REMOTE.search(output):
        raise PluginError(f"{page.file.src_uri} fetches from elsewhere: {remote.group()}")
    return output
