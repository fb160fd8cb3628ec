"""Command groups: the sections of `hookledger --help`, and groups that list by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click


class Sections(click.Group):
    """Shows its commands in named sections, each with its whole help line."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]  # click's own
        self.sections: dict[str, list[str]] = {}

    def add_sections(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        for title, commands in sections.items():
            self.sections[title] = []
            for command in commands:
                self.add_command(command)
                self.sections[title].append(command.name or "")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, self.commands), default=0)
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), help_line(self.commands[name])) for name in names])


def help_line(command: click.Command) -> str:
    """Return the first paragraph of a command's help."""
    return (command.help or "").strip().partition("\n\n")[0]


class ListsByDefault(click.Group):
    """A group whose name alone, or with options only, means its `list` command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)
