# SPDX-License-Identifier: Apache-2.0
"""Files, environment and flags → one `Config`, or one error that names the key, the place and the remedy.

Later wins: defaults < config.toml < conf.d/*.toml (by name) < `HOTSTAGE_<SECTION>_<KEY>` < flags.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from hotstage.config.section import REMEDY, SHAPE, Section, choices, said
from hotstage.config.settings import Config
from hotstage.config.source import Tree, parse_toml, parts_of, read_text
from hotstage.errors import ConfigError

DEFAULT_FILE = Path("/etc/hotstage/config.toml")
ENVIRONMENT_PREFIX = "HOTSTAGE_"
_FIELD = re.compile(r"unknown field `(?P<field>[^`]*)`(?: - at `\$\.?(?P<at>[^`]*)`)?")
_NO_CHOICE = "Invalid enum value"
_REMEDY = re.compile(r"; remedy: (?P<remedy>.*)$")
_AT = re.compile(r" - at (?:`key` in )?`\$\.?(?P<at>[^`]*)`")


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[tuple[str, str], Any] | None = None,
) -> Config:
    """The configuration in force.

    `file` None means the default file, which may be absent; a named file must exist. `flags` maps
    (section, key) to a value; None values are ignored. Raises ConfigError; nothing is applied partly.
    """
    tree: Tree = {}
    for source in _files(file):
        text = read_text(source)
        part = parse_toml(text, source)
        _convert(part, str(source), text)
        _merge(tree, part)
    part = _from_environment(environment or {})
    _convert(part, "the environment")
    _merge(tree, part)
    for (section, key), value in (flags or {}).items():
        if value is not None:
            _merge(tree, {section: {key: value}})
    return _convert(tree, "the command line")


def problems(file: Path | None = None, environment: Mapping[str, str] | None = None) -> Iterator[ConfigError]:
    """Every key that `load` would refuse, where that names the first only. Raises nothing."""
    try:
        sources = _files(file)
    except ConfigError as error:
        yield error
        return
    for source in sources:
        try:
            text = read_text(source)
            part = parse_toml(text, source)
        except ConfigError as error:
            yield error
        else:
            yield from _problems_in(part, str(source), text)
    for variable, value in sorted((environment or {}).items()):
        try:
            part = _from_environment({variable: value})
        except ConfigError as error:
            yield error
        else:
            yield from _problems_in(part, "the environment")


def _problems_in(part: Tree, place: str, text: str = "") -> Iterator[ConfigError]:
    """Key by key: the first wrong one would hide the others."""
    for section, values in part.items():
        keys = values.items() if isinstance(values, dict) else ()
        for tree in [{section: {key: value}} for key, value in keys] or [{section: values}]:
            try:
                _convert(tree, place, text)
            except ConfigError as error:
                yield error
            if section not in Config.__struct_fields__:
                break


def files_of(file: Path | None = None) -> list[Path]:
    """What `load` reads, in order. Raises ConfigError."""
    return _files(file)


def sections() -> Iterator[tuple[str, type[Section]]]:
    """Name and struct of every section, in order."""
    hints = get_type_hints(Config)
    for name in Config.__struct_fields__:
        yield name, hints[name]


def _files(file: Path | None) -> list[Path]:
    main = file or DEFAULT_FILE
    try:
        exists = main.exists()
    except OSError as error:
        raise ConfigError(
            f"{main}: {error.strerror}", remedy="let this user enter the directories above it"
        ) from error
    if file is not None and not exists:
        raise ConfigError(
            f"{main}: no such configuration file",
            remedy="name an existing file with --config, or leave it out",
        )
    return ([main] if exists else []) + parts_of(main.parent / "conf.d")


def _from_environment(environment: Mapping[str, str]) -> Tree:
    tree: Tree = {}
    for variable in sorted(environment):
        rest = variable.removeprefix(ENVIRONMENT_PREFIX)
        if rest == variable:
            continue
        for name, struct in sections():
            key = rest.lower().removeprefix(f"{name}_")
            if key == rest.lower():
                continue
            if key not in struct.__struct_fields__:
                raise ConfigError(
                    f"{variable}: section [{name}] has no key `{key}`",
                    remedy=_nearest(key, struct.__struct_fields__),
                )
            tree.setdefault(name, {})[key] = _value(name, struct, key, environment[variable], variable)
    return tree


def _value(section: str, struct: type[Section], key: str, text: str, variable: str) -> Any:
    """A variable's text as its key's type; lists and tables are written as JSON."""
    kind = get_type_hints(struct, include_extras=True)[key]
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        refused = error
    found: Any = None
    try:
        found = json.loads(text)
        return msgspec.to_builtins(msgspec.convert(found, kind))
    except (ValueError, RecursionError) as error:
        if isinstance(error, msgspec.ValidationError) and isinstance(found, list | dict):
            raise _explain(_inside(str(error), f"{section}.{key}"), variable, "") from error
    reason, remedy = _AT.sub("", str(refused)), "lists and tables are written as JSON"
    if reason.startswith(_NO_CHOICE):
        remedy = _one_of(reason, choices(kind))
    raise ConfigError(f"{variable}: {reason}", remedy=remedy) from refused


def _inside(message: str, path: str) -> str:
    """A message of msgspec about a value as one about the whole configuration, where `path` leads to it."""
    at = found["at"] if (found := _AT.search(message)) else ""
    return f"{_AT.sub('', message)} - at `$.{path}{at if at.startswith('[') or not at else f'.{at}'}`"


def _convert(tree: Tree, place: str, text: str = "") -> Config:
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        raise _explain(str(error), place, text) from error
    except (RecursionError, ValueError, OverflowError) as error:
        raise ConfigError(f"{place}: {error}", remedy="no key needs such a value") from error


def _explain(message: str, place: str, text: str) -> ConfigError:
    # A key may be quoted and hold anything: none of it may move a terminal or make a line of a log.
    message = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in message)
    unknown = _FIELD.search(message)
    if unknown:
        key, at = unknown["field"], unknown["at"] or ""
        where = f"{place}{_line_of(text, key, at)}"
        inside = f"[{at}] has no key `{key}`" if at else f"there is no section [{key}]"
        return ConfigError(f"{where}: {inside}", remedy=_nearest(key, _known_at(at)))
    at = found["at"] if (found := _AT.search(message)) else ""
    key = _plain_path(at).rpartition(".")[2]
    reason = _AT.sub("", message)
    kind = _type_at(at)
    if "matching regex" in reason and (shape := said(kind, SHAPE)):
        reason = f"Expected {shape}"
    remedy = "`hotstage config schema` lists every key with its type and unit"
    if reason.startswith(_NO_CHOICE) and (known := choices(kind)):
        remedy = _one_of(reason, known, said(kind, REMEDY) or "")
    elif fitting := _REMEDY.search(reason):
        reason, remedy = reason[: fitting.start()], fitting["remedy"]
    return ConfigError(f"{place}{_line_of(text, key, at)}: `{at}`: {reason}", remedy=remedy)


def _one_of(reason: str, known: tuple[str, ...], note: str = "") -> str:
    """The remedy for a word that is none of the known ones; `note` where it is like none of them."""
    word = reason.removeprefix(_NO_CHOICE).strip(" '")
    close = difflib.get_close_matches(word, known, n=1)
    meant = f"did you mean `{close[0]}`? " if close else note
    return f"{meant}it is one of {', '.join(known)}"


def _type_at(at: str) -> Any:
    """The type of the key that a msgspec path leads to; None where there is none."""
    struct, _, key = _plain_path(at).rpartition(".")
    return dict(hints_at(struct)).get(key)


def hints_at(at: str) -> list[tuple[str, Any]]:
    """(key, type) of the struct that a path such as `notify.destinations` leads to; nothing below a value."""
    struct: Any = Config
    for step in filter(None, at.split(".")):
        hint = get_type_hints(struct).get(step)
        arguments = getattr(hint, "__args__", ())
        struct = arguments[0] if arguments and hasattr(arguments[0], "__struct_fields__") else hint
        if not hasattr(struct, "__struct_fields__"):
            return []
    hints = get_type_hints(struct, include_extras=True)
    return [(key, hints[key]) for key in struct.__struct_fields__]


def _known_at(at: str) -> tuple[str, ...]:
    return tuple(key for key, _ in hints_at(_plain_path(at)))


def _nearest(key: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"known here: {', '.join(known)}" if known else "`hotstage config schema` lists every key"


def _plain_path(at: str) -> str:
    """`stages.rules[2].stage` → `stages.rules.stage`."""
    return re.sub(r"\[[^\]]*\]", "", at)


def _line_of(text: str, key: str, at: str) -> str:
    """`:LINE` of the first line that sets or opens `key`, in that one of several tables of a name which the
    path `at` tells; nothing when it cannot be told.
    """
    if not key:
        return ""
    lines = text.splitlines()
    nth = re.search(r"(?P<name>\w+)\[(?P<n>\d+)\]", at)
    begin = _begin_of(lines, nth["name"], int(nth["n"])) if nth else 0
    if begin is None and nth and nth["name"] != key:
        return ""
    pattern = re.compile(rf"^\s*(?:\[+[\w.]*\b)?{re.escape(key)}\b")
    for number in range(begin or 0, len(lines)):
        if pattern.match(lines[number]):
            return f":{number + 1}"
    return ""


def _begin_of(lines: list[str], name: str, nth: int) -> int | None:
    """Where the `nth` of the tables begins that are written `[[name]]`; None where they are written inline:
    several may stand in one line.
    """
    head = re.compile(rf"^\s*\[\[[\w.]*\b{name}\s*\]\]")
    begins = [number for number, line in enumerate(lines) if head.match(line)]
    return begins[nth] if nth < len(begins) else None


def _merge(into: Tree, part: Mapping[str, Any]) -> None:
    """Tables are merged key by key; everything else is replaced."""
    for key, value in part.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
