# SPDX-License-Identifier: Apache-2.0
"""An operator's C as the preprocessor comes to see it, before anything of it is judged. Pure text work.

The compiler joins continued lines, then takes comments and literals out, and only then looks for directives:
whoever judges the text as it was written judges another one. What compilers read in different ways
(trigraphs, carriage returns, control characters, white space beyond ASCII) is refused: one reading is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hotstage.errors import ConfigError

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_CONTINUED = re.compile(r"\\[ \t]*\n")
_TOKEN = re.compile(
    r"(?P<comment>/\*.*?\*/|//[^\n]*)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<character>'(?:[^'\\\n]|\\.)*')"
    r"|(?P<open>/\*|[\"'])",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(?P<name>\w*)(?P<rest>[^\n]*)$", re.MULTILINE)
_PLAIN_INCLUDE = re.compile(r"[ \t]*<[A-Za-z0-9_+-][A-Za-z0-9_+/-]*\.h>[ \t]*")
_PLAIN_DIRECTIVES = frozenset(
    {"", "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "warning"}
)
_PRAGMA = re.compile(r"[ \t]+(?:unroll|nounroll|clang[ \t]+loop)\b")
_READS_FILES = re.compile(
    r"\b(?:__has_include\w*|__has_embed\w*|_Pragma|__pragma|(?:__)?asm\w*|TRACE_INCLUDE\w*|(?:u8|[uUL])?R(?=\"))"
    r"|##|%:%:|\\|[^\x00-\x7f]"
)
_HEADERS_ONLY = "include kernel headers only: <linux/sched.h>"


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """`code` has a blank for each comment and `""` or `0` for each literal, and as many lines as the file."""

    code: str

    def line_of(self, at: int) -> int:
        return self.code.count("\n", 0, at) + 1


def preprocess(path: str, text: str) -> Preprocessed:
    """Raises ConfigError with line and remedy for what could read another file, or be read in two ways."""
    text = text.replace("\r\n", "\n")
    for pattern, what, remedy in (
        (_CONTROL, "a control character", "plain text, with line ends of one kind"),
        (_TRIGRAPH, "a trigraph", "write the character that it stands for"),
    ):
        found = pattern.search(text)
        if found:
            raise refusal(path, text, found.start(), what, remedy)
    seen = Preprocessed("".join(_without_literals(path, _joined(text))))
    _check_directives(path, seen, text.split("\n"))
    _check_words(path, seen)
    return seen


def refusal(path: str, code: str, at: int, what: str, remedy: str) -> ConfigError:
    """It names the line on which `at` is."""
    return ConfigError(f"{path}:{code.count(chr(10), 0, at) + 1}: {what}", remedy=remedy)


def _joined(text: str) -> str:
    """Continued lines as one; the line ends that they had come after them, so that numbers stay."""
    lines: list[str] = []
    pending, owed = "", 0
    for line in _CONTINUED.sub("\\\\\n", text).split("\n"):
        if line.endswith("\\"):
            pending, owed = pending + line[:-1], owed + 1
            continue
        lines += [pending + line, *[""] * owed]
        pending, owed = "", 0
    return "\n".join([*lines, *([pending] if owed else [])])


def _without_literals(path: str, text: str) -> Iterator[str]:
    at = 0
    for token in _TOKEN.finditer(text):
        yield text[at : token.start()]
        at = token.end()
        if token["open"]:
            raise refusal(path, text, token.start(), f"{token['open']} is not closed", "close it on its line")
        lines = "\n" * token[0].count("\n")
        yield f" {lines}" if token["comment"] else f'""{lines}' if token["string"] else f"0{lines}"
    yield text[at:]


def _check_directives(path: str, seen: Preprocessed, lines: list[str]) -> None:
    for match in _DIRECTIVE.finditer(seen.code):
        name, rest = match["name"], match["rest"]
        is_plain = (
            bool(_PLAIN_INCLUDE.fullmatch(rest)) and ".." not in rest
            if name == "include"
            else bool(_PRAGMA.match(rest))
            if name == "pragma"
            else name in _PLAIN_DIRECTIVES and not (name == "" and rest.strip())
        )
        if not is_plain:
            written = lines[seen.line_of(match.start()) - 1].strip()
            raise refusal(path, seen.code, match.start(), f"`{written}`", _HEADERS_ONLY)


def _check_words(path: str, seen: Preprocessed) -> None:
    found = _READS_FILES.search(seen.code)
    if found:
        raise refusal(
            path, seen.code, found.start(), f"`{found[0]}` is not taken",
            "no assembler, no pasting of tokens, no question for files, ASCII outside of comments",
        )  # fmt: skip
