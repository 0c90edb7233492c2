# SPDX-License-Identifier: Apache-2.0
"""What agent, notifier and explorer look at in their settings when they start, asked beforehand: all at once.

Files that settings name are read, nothing is made, bound or sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hotstage.api.access import Access, group_id, parse_address
from hotstage.config.notify import Destination
from hotstage.config.settings import Config
from hotstage.engines.target import read_targets as read_engines
from hotstage.errors import ConfigError, HotstageError
from hotstage.notify.destinations import read_targets, unsafe
from hotstage.sinks.otlp.collector import Collector
from hotstage.sinks.slo import Slos

Check = Callable[[Config, Mapping[str, str]], object]


def refusals(config: Config, environment: Mapping[str, str]) -> Iterator[HotstageError]:
    """Why a process would not start: each reason of each, none of them a traceback."""
    for key, check in _CHECKS.items():
        try:
            check(config, environment)
        except HotstageError as error:
            yield error
        except Exception as error:
            # Not its text, which may hold a part of a URL.
            yield ConfigError(f"{key}: {type(error).__name__}", remedy=f"look at {key} and its variables")
    yield from _absent_files(config)


def refused_destinations(config: Config, environment: Mapping[str, str]) -> Iterator[ConfigError]:
    """Destinations to which the notifier would send nothing; it starts in spite of them. Raises ConfigError
    for two of one name.

    Of those whose secret is only there under systemd, no more than the URL is looked at.
    """
    yield from unsafe(config.notify.destinations)
    safe = [each for each in config.notify.destinations if not unsafe([each])]
    complete = [each for each in safe if _is_complete(each, environment)]
    for refused in read_targets(complete, environment)[1]:
        yield ConfigError(refused.reason, remedy=refused.remedy)


def _is_complete(destination: Destination, environment: Mapping[str, str]) -> bool:
    named = (destination.url_file, destination.secret_file, destination.authorization_file)
    has_variable = destination.secret_env is None or destination.secret_env in environment
    return has_variable and all(file is None or Path(file).is_absolute() for file in named)


def _group(config: Config, environment: Mapping[str, str]) -> None:
    if config.http.socket_group is not None:
        group_id(config.http.socket_group)


def _names_apart(config: Config, environment: Mapping[str, str]) -> None:
    unsafe(config.notify.destinations)


_CHECKS: dict[str, Check] = {
    "http": lambda config, _: Access.of(config.http),
    "http.socket_group": _group,
    "otlp": lambda config, environment: Collector.of(config.otlp, environment),
    "slo": lambda config, _: Slos(config.slo.objectives),
    "engines": lambda config, _: read_engines(config.engines.endpoints),
    "explore.listen": lambda config, _: parse_address(config.explore.listen),
    "notify.destinations": _names_apart,
}


def _absent_files(config: Config) -> Iterator[ConfigError]:
    """Of what is read only later: tokens for engines and for Prometheus."""
    files = {
        f"engines.endpoints {each.name}.token_file": each.token_file for each in config.engines.endpoints
    }
    files["explore.prometheus_token_file"] = config.explore.prometheus_token_file
    for key, name in files.items():
        if name is not None and Path(name).is_absolute():
            try:
                Path(name).stat()
            except OSError as error:
                yield ConfigError(f"{key} {name}: {error.strerror}", remedy="check its path and owner")
