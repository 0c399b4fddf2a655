"""The progress bar of long commands."""

import io

from rich.console import Console

from cli.progress import progress_bar


def shown(*, terminal):
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=80)
    with progress_bar(console) as bar:
        task = bar.add_task("cases", total=7)
        bar.update(task, completed=3)
        bar.refresh()
    return text.getvalue()


def test_bar_counts_on_a_terminal():
    assert "3/7" in shown(terminal=True)
    assert "cases" in shown(terminal=True)


def test_nothing_is_written_to_a_file():
    assert shown(terminal=False).strip() == ""
