"""`gpudiag docs`: the manual."""

from __future__ import annotations

import click

from gpudiag.cli import candidates
from gpudiag.cli.candidates import Word
from gpudiag.cli.delivery import in_color, on_terminal, page, pager_option, width
from gpudiag.cli.help import Command
from gpudiag.cli.options import debug_option
from gpudiag.text import put


@click.command(cls=Command, name="docs", context_settings={"ignore_unknown_options": True})
@click.argument("topic", nargs=-1, type=Word(candidates.topics))
@pager_option
@debug_option
def docs_(topic: tuple[str, ...]) -> int:
    """Read the manual: its pages, or what it says about TOPIC.

    TOPIC is a page (start), a probe, a cause, an option (--log), or words: gpudiag docs memory growth. After the name
    of a page, words are looked for in that page: gpudiag docs deployment slurm. On a terminal the text is filled and
    has colour, and a long text goes through the pager; otherwise it is Markdown. A file that belongs to a page is
    printed as it is: gpudiag docs slurm-prolog.sh > prolog.sh.
    """
    from gpudiag import docs

    if content := docs.file(topic):
        put(content)
        return 0
    text = docs.answer(topic)
    if on_terminal():
        from gpudiag.docs.terminal import rendered

        color = in_color()
        page(rendered(text, width(), color=color), color=color)
    else:
        put(text)
    return 0
