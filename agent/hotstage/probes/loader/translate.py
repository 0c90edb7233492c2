# SPDX-License-Identifier: Apache-2.0
"""One BPF source for two compilers: our C as bcc wants it. Pure text work; loads and compiles nothing.

bcc compiles one text in memory, takes map calls only as methods (`threads.lookup(&tid)`), and has the sizes
of maps in that text. So includes are put in place, plain map calls are respelled, and entries are filled
in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"[^\n]*$', re.MULTILINE)
_CALL = re.compile(
    r"\bbpf_(?:map_(lookup|update|delete|push|pop)_elem|ringbuf_(reserve|output))\(\s*&(\w+)\s*,\s*"
)
_DECLARATION = re.compile(r"^(HOTSTAGE_[A-Z_]+)\((\w+),([^;]*?)(\w+)\);", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_PAGE_BYTES = 4096


class TranslateError(ValueError):
    """The source uses a spelling that bcc could not take; the message shows it."""


def translate(source: Path, entries: Mapping[str, int] | None = None) -> str:
    """`source` with its own headers inlined, for bcc; `entries` are map sizes by map name (rings: bytes)."""
    text = _COMMENT.sub(" ", _inline(source.resolve(), set()))
    return respell_calls(set_entries(text, entries or {}))


def respell_calls(text: str) -> str:
    """Plain map calls → bcc's methods, whatever is nested in their arguments."""
    parts: list[str] = []
    at = 0
    while match := _CALL.search(text, at):
        parts.append(text[at : match.start()])
        arguments, at = _arguments(text, match.end())
        verb, name = match[1] or f"ringbuf_{match[2]}", match[3]
        parts.append(_method(verb, name, [respell_calls(argument) for argument in arguments]))
    return "".join(parts) + text[at:]


def set_entries(text: str, entries: Mapping[str, int]) -> str:
    """Declarations of maps with their sizes replaced; maps that `entries` does not name keep theirs."""

    def resized(match: re.Match[str]) -> str:
        macro, name, middle, size = match.groups()
        return f"{macro}({name},{middle}{entries.get(name, size)});"

    return _DECLARATION.sub(resized, text)


def _method(verb: str, name: str, arguments: list[str]) -> str:
    match verb, arguments:
        case "lookup" | "delete", [key]:
            return f"{name}.{verb}({key})"
        case "update", [key, value, "BPF_ANY"]:
            return f"{name}.update({key}, {value})"
        case "update", [key, value, "BPF_NOEXIST"]:
            return f"{name}.insert({key}, {value})"
        case "push", [value, flags]:
            return f"{name}.push({value}, {flags})"
        case "pop", [value]:
            return f"{name}.pop({value})"
        case "ringbuf_reserve", [size, "0"]:
            return f"{name}.ringbuf_reserve({size})"
        case "ringbuf_output", [data, size, flags]:
            return f"{name}.ringbuf_output({data}, {size}, {flags})"
    raise TranslateError(f"bcc has no form of {verb}(&{name}, {', '.join(arguments)})")


def _arguments(text: str, at: int) -> tuple[list[str], int]:
    """Arguments from `at` to the closing bracket of their call, and where the text goes on."""
    found: list[str] = []
    depth, start = 0, at
    for index, char in _structure(text, at):
        if char == "(":
            depth += 1
        elif char == ")" and depth:
            depth -= 1
        elif not depth:
            found.append(text[start:index].strip())
            start = index + 1
            if char == ")":
                return found, start
    raise TranslateError(f"a call that does not end: {text[at : at + 60]!r}")


def _structure(text: str, at: int) -> Iterator[tuple[int, str]]:
    for index in range(at, len(text)):
        if text[index] in "(),":
            yield index, text[index]


def _inline(file: Path, seen: set[Path]) -> str:
    """The file's text with quoted includes in place, each header once."""
    if file in seen:
        return ""
    seen.add(file)
    return _INCLUDE.sub(lambda match: _inline((file.parent / match[1]).resolve(), seen), file.read_text())
