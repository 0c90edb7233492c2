# SPDX-License-Identifier: Apache-2.0
"""A new configuration for the running agent: all of it or nothing; what needs a restart is named by its key.

`plan` does everything that can be refused, `Plan.apply` hands it over; `take_over` does both, never raising,
whatever stands in a file: the agent goes on. Called from the tick thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from hotstage.config.settings import Config
from hotstage.daemon.line import Line
from hotstage.detect.rules.rule_file import Rule, load_rules
from hotstage.errors import ConfigError, HotstageError

log = logging.getLogger(__name__)

LIVE = (
    *("detect.", "windows.", "breakers.", "conflict.", "log.level"),
    *("stages.rules", "stages.shipped_rules", "stages.steps"),
)
"""What the running agent can take over."""
LEARNED = (
    "detect.stage_latency_factor",
    "detect.stage_latency_floor_seconds",
    "detect.min_baseline_samples",
)
"""How stages are judged: what was learned with it would have to be learned anew."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a reload will do. `config` is what is then in force: of the keys that need a restart, the old."""

    config: Config
    rules: tuple[Rule, ...]
    taken: tuple[str, ...]
    needs_restart: tuple[str, ...]

    def apply(self, line: Line, in_force: Config) -> None:
        """Take it over; where a part refuses, all parts get `in_force` again and its error is raised."""
        rules = line.detectors.rules.rules
        try:
            _hand_over(line, self.config, self.rules)
        except Exception:
            _hand_over(line, in_force, rules)
            raise


def take_over(line: Line, in_force: Config, read: Callable[[], Config]) -> Plan | HotstageError:
    """What `read()` gives comes into force; an error is why it has not, and then nothing has changed."""
    try:
        made = plan(in_force, read)
        made.apply(line, in_force)
    except HotstageError as error:
        return error
    except Exception as error:
        log.exception("a reload failed in a way that nobody foresaw")
        return HotstageError(
            f"{type(error).__name__}: {error}",
            remedy="`hotstage config check`; what was stays in force",
        )
    return made


def plan(in_force: Config, read: Callable[[], Config]) -> Plan:
    """What changes when `read()` comes into force. Raises ConfigError, and then nothing has changed."""
    wanted = read()
    rules, problems = load_rules(wanted.detect.rules_files, builtin=wanted.detect.builtin_rules)
    if problems:
        raise ConfigError(
            "; ".join(str(problem) for problem in problems), remedy="`hotstage config check` names each"
        )
    changed = tuple(_changed(in_force, wanted))
    taken = tuple(key for key in changed if is_live(key))
    return Plan(
        config=_taken_over(in_force, wanted, taken),
        rules=tuple(rules),
        taken=taken,
        needs_restart=tuple(key for key in changed if not is_live(key)),
    )


def _hand_over(line: Line, config: Config, rules: Sequence[Rule]) -> None:
    line.take_over(config, rules)
    logging.getLogger().setLevel(config.log.level.upper())


def is_live(key: str) -> bool:
    """Whether `section.key` is taken over without a restart."""
    return key.startswith(LIVE) and key not in LEARNED


def _changed(before: Config, after: Config) -> Iterator[str]:
    for section in Config.__struct_fields__:
        old, new = getattr(before, section), getattr(after, section)
        for key in old.__struct_fields__:
            if getattr(old, key) != getattr(new, key):
                yield f"{section}.{key}"


def _taken_over(before: Config, after: Config, keys: tuple[str, ...]) -> Config:
    made = before
    for dotted in keys:
        section, key = dotted.split(".")
        changed = replace(getattr(made, section), **{key: getattr(getattr(after, section), key)})
        made = replace(made, **{section: changed})
    return made
