"""How ``--help`` is laid out, and how errors of the command line are worded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from gpudiag.errors import UsageError, nearest, sentences

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

OTHERS = "Other options"
"""The title of the group of options that have none."""
_NAME_COLUMNS = 30
"""The most columns for names beside their help; of a narrow terminal at most a third."""


class GroupedOption(click.Option):
    """An option that ``--help`` shows below the title of its group."""

    def __init__(self, *arguments: Any, group: str = "", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.group = group


def groups(parameters: Iterable[click.Parameter]) -> dict[str, list[click.Option]]:
    """Return the options that are not hidden by the titles of their groups, others last."""
    options_by_group: dict[str, list[click.Option]] = {}
    for parameter in parameters:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            title = parameter.group if isinstance(parameter, GroupedOption) else OTHERS
            options_by_group.setdefault(title, []).append(parameter)
    others = options_by_group.pop(OTHERS, [])
    return options_by_group | ({OTHERS: others} if others else {})


class Command(click.Command):
    """A command whose ``--help`` shows its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group below its title."""
        options_by_group = groups(self.get_params(ctx))
        for title, options in options_by_group.items():
            heading = title if len(options_by_group) > 1 else "Options"
            write_rows(formatter, heading, [row for option in options if (row := option.get_help_record(ctx))])


CHECK_ARGUMENTS = "gpudiag.fleet.arguments"
"""Where the context of a :class:`CheckCommand` has the words after ``--``."""


class CheckCommand(Command):
    """Takes what follows ``--`` as arguments of the check on each node."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words after ``--`` apart."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[CHECK_ARGUMENTS] = tuple(args[at + 1 :])
        if not ctx.resilient_parsing:
            refuse_wrong_options(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


def refuse_wrong_options(arguments: Iterable[str]) -> None:
    """Raise click's error for an option or a value that 'gpudiag check' does not take.

    Paths are not looked at, as they may exist on the nodes alone, nor are values with ``{node}`` in them.
    """
    from gpudiag import cli

    check = cli.command("check")
    context = click.Context(check, info_name="gpudiag check")
    values, _, _ = check.make_parser(context).parse_args([*arguments])
    for parameter in check.params:
        value = values.get(parameter.name or "")
        is_same = isinstance(value, (str, list, tuple)) and not any("{node}" in word for word in value)
        if is_same and not isinstance(parameter.type, click.Path):
            parameter.type_cast_value(context, value)


class CommandGroup(click.Group):
    """A group of commands whose error for a name that it does not have names the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with; raises :class:`UsageError` that names the nearest."""
        names = self.list_commands(ctx)
        if args[0] not in names and not ctx.resilient_parsing:
            shown = [name for name in names if (found := self.get_command(ctx, name)) and not found.hidden]
            near = nearest(args[0], shown)
            raise UsageError(sentences(f"no command is called {args[0]!r}.", near, f"See '{ctx.command_path} --help'."))
        return super().resolve_command(ctx, args)


class ProgramWord(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2, and not subscriptable before
    """A word of a program's command line; a shell completes it to files."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
        """Return the item for which the shell looks for files."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class ProgramCommand(Command):
    """A command whose last argument, ``command``, is a program's command line; options in it are the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raises :class:`click.NoSuchOption` for an option before the program's command line."""
        own = args[: args.index("--")] if "--" in args else [*args]
        rest = super().parse_args(ctx, args)
        first = (ctx.params.get("spec") or "", *(ctx.params.get("command") or ())[:1])
        for word in first:
            if word.startswith("-") and word in own and word != "-m" and not ctx.resilient_parsing:
                raise click.NoSuchOption(word.partition("=")[0], ctx=ctx)
        return rest

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; once the program's command line has begun, a shell completes no other."""
        parameters = super().get_params(ctx)
        if ctx.resilient_parsing and ctx.params.get("command"):
            return [parameter for parameter in parameters if parameter.name == "command"]
        return parameters

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Return gpudiag's options, or the files for a program's option."""
        if ctx.params.get("command"):
            return next(iter(self.get_params(ctx))).shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def write_rows(formatter: click.HelpFormatter, title: str, rows: list[tuple[str, str]]) -> None:
    """Write names and their help lines below a title; the help lines are wrapped, not cut."""
    with formatter.section(title):
        formatter.write_dl(rows, col_max=min(_NAME_COLUMNS, formatter.width // 3))


def refusal(error: click.ClickException) -> str:
    """Return click's error in the words of gpudiag's own: what is wrong, the nearest names, and where to look."""
    context = getattr(error, "ctx", None)
    if context is None:
        return error.format_message()
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        options = [option for options in groups(context.command.get_params(context)).values() for option in options]
        known = [name for option in options for name in (*option.opts, *option.secondary_opts)]
        is_long = error.option_name.startswith("--")  # any two letters are as near as any other two
        near = nearest(error.option_name, [name for name in known if name.startswith("--")]) if is_long else ""
        message = sentences(f"no option of '{context.command_path}' is called {error.option_name!r}.", near)
    return sentences(message[:1].lower() + message[1:].rstrip(), f"See '{context.command_path} --help'.")
