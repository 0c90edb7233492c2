# SPDX-License-Identifier: Apache-2.0
"""Words that people try after a verb, and what they mean there: `breakers list` is `breakers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

ITSELF = ""
"""The verb alone does what the word asks for."""


class SynonymGroup(click.Group):
    """`synonyms`: word → the subcommand that it means, or `ITSELF`. Only the first word is looked at."""

    def __init__(self, *args: Any, synonyms: Mapping[str, str], **named: Any) -> None:
        super().__init__(*args, **named)
        self._synonyms = synonyms

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, meant(args, self._synonyms))


class SynonymCommand(click.Command):
    """The same for a verb without subcommands."""

    def __init__(self, *args: Any, synonyms: Mapping[str, str], **named: Any) -> None:
        super().__init__(*args, **named)
        self._synonyms = synonyms

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, meant(args, self._synonyms))


def meant(args: list[str], synonyms: Mapping[str, str]) -> list[str]:
    """The arguments with their first word replaced by what it means, or left out."""
    word = synonyms.get(args[0]) if args else None
    if word is None:
        return args
    return args[1:] if word == ITSELF else [word, *args[1:]]
