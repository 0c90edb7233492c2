# SPDX-License-Identifier: Apache-2.0
"""`[[stages.rules]]` → what work of a thread on a stream counts as. Pure: facts in, the rules that fit out.

A glob is Python's fnmatch, case counts. All keys that a rule has must fit. The shipped rules come after the
operator's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

import msgspec

from hotstage.attribution.facts import ProcessFacts
from hotstage.config.source import parse_toml, read_text
from hotstage.config.stages import MATCHED_BY, StageRule, StagesConfig
from hotstage.errors import ConfigError
from hotstage.probes.maps.inference import Stream
from hotstage.stages.stage import Modality, Stage

SHIPPED_FILE = Path(__file__).with_name("shipped.rules.toml")
DEFAULT_STREAMS = frozenset({0, 1, 2})
"""NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD of cuda.h."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with its place: number 1 is the first; `is_shipped` those that come with hotstage."""

    number: int
    is_shipped: bool
    config: StageRule

    @property
    def stage(self) -> int:
        return int(Stage[self.config.stage])

    @property
    def modality(self) -> int:
        return int(Modality[self.config.modality])

    @property
    def text(self) -> str:
        """`rule 3: thread = "vit-*"`, with all that it matches by."""
        given = [
            f'{key} = "{value}"' for key in MATCHED_BY if (value := getattr(self.config, key)) is not None
        ]
        origin = "shipped rule" if self.is_shipped else "rule"
        return f"{origin} {self.number}: {', '.join(given)}"


class RuleSet:
    """The rules in force, in order."""

    def __init__(self, config: StagesConfig) -> None:
        shipped = shipped_rules() if config.shipped_rules else []
        self.rules: tuple[Rule, ...] = (
            *(Rule(number, False, each) for number, each in enumerate(config.rules, 1)),
            *(Rule(number, True, each) for number, each in enumerate(shipped, 1)),
        )
        self.uses_libraries = any(rule.config.library is not None for rule in self.rules)
        self.uses_streams = any(rule.config.stream is not None for rule in self.rules)
        self.uses_threads = any(rule.config.thread is not None for rule in self.rules)

    def matching(
        self,
        process: ProcessFacts,
        thread: str | None = None,
        stream: Stream | int | None = None,
        nth: int = -1,
    ) -> list[Rule]:
        """All that fit, the one that wins first. A thread or stream that is None fits no rule that asks for
        one. `nth`: which stream of its process it is, from 0.
        """
        return [rule for rule in self.rules if _fits(rule.config, process, thread, stream, nth)]


def shipped_rules() -> list[StageRule]:
    """What stands in the file that comes with hotstage. Raises ConfigError."""
    tree = parse_toml(read_text(SHIPPED_FILE), SHIPPED_FILE)
    try:
        return msgspec.convert(tree.get("stages", {}).get("rules", []), list[StageRule])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{SHIPPED_FILE}: {error}", remedy="install hotstage again") from error


def _fits(
    rule: StageRule, process: ProcessFacts, thread: str | None, stream: Stream | int | None, nth: int
) -> bool:
    if rule.thread is not None and (thread is None or not _matches(thread, rule.thread)):
        return False
    if rule.command is not None and not _matches(process.command, rule.command):
        return False
    if rule.container is not None and not _matches(process.container or "", rule.container):
        return False
    if rule.cgroup is not None and not _matches(process.cgroup, rule.cgroup):
        return False
    if rule.library is not None and not _any(process.libraries, rule.library):
        return False
    return rule.stream is None or (stream is not None and _is_stream(rule.stream, stream, nth))


@lru_cache(maxsize=4096)
def _pattern(glob: str) -> re.Pattern[str]:
    """fnmatch keeps 256 of them, and 256 rules may have five each."""
    return re.compile(translate(glob))


def _matches(text: str, glob: str) -> bool:
    return _pattern(glob).match(text) is not None


def _any(names: Sequence[str], pattern: str) -> bool:
    return any(_matches(name, pattern) for name in names)


def _is_stream(wanted: str, stream: Stream | int, nth: int) -> bool:
    handle = stream if isinstance(stream, int) else stream.handle
    if wanted == "default":
        return handle in DEFAULT_STREAMS
    if wanted.startswith("#"):
        return nth == int(wanted[1:])
    if wanted.startswith("priority:"):
        return not isinstance(stream, int) and stream.priority == int(wanted.partition(":")[2])
    return handle == int(wanted, 16)
