# SPDX-License-Identifier: Apache-2.0
"""The command line: one verb a module, imported only when it is asked for.

Exit codes: 0 fine, 1 failed, 2 usage, 3 degraded, 4 preflight failed, 5 permission.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from hotstage import __version__
from hotstage.cli.terminal import say
from hotstage.errors import HotstageError

VERBS = {
    "doctor": ("hotstage.cli.doctor", "What this host can do for hotstage, and what is in the way."),
    "agent": ("hotstage.cli.agent", "Attach the probes, judge, serve the API (needs privileges)."),
    "notify": ("hotstage.cli.notify", "Deliver the agent's events to the configured webhooks."),
    "explore": ("hotstage.cli.explore", "Serve the 3D explorer of heat, latency and load."),
    "up": ("hotstage.cli.up", "Start agent, notifier and explorer on this host."),
    "demo": ("hotstage.cli.demo", "Watch a simulated GPU host, with a fault on command."),
    "coverage": ("hotstage.cli.coverage", "What is attached where, and how many calls were counted."),
    "top": ("hotstage.cli.top", "Processes and stages live: launches, waits, memory, cost of probes."),
    "probes": ("hotstage.cli.probes", "The kill switch: take all probes away, bring them back."),
    "snapshot": ("hotstage.cli.snapshot", "What every request in flight is doing right now."),
    "stages": ("hotstage.cli.stages", "Stages now; `explain PID`: why a thread counts as what it does."),
    "requests": ("hotstage.cli.requests", "Finished requests, and where the time of one went."),
    "kernels": ("hotstage.cli.kernels", "Launches of each process by kernel, from samples."),
    "stacks": ("hotstage.cli.stacks", "From where slow and failing calls were made."),
    "memory": ("hotstage.cli.memory", "Memory of GPUs by process, kind and stage; fragmentation."),
    "classes": ("hotstage.cli.classes", "Requests by modality and size; time of a request by stage."),
    "windows": ("hotstage.cli.windows", "Anomaly windows with their ranked cause."),
    "breakers": ("hotstage.cli.breakers", "Breaker states, history and overrides."),
    "webhook": ("hotstage.cli.webhook", "Webhook destinations: list, test, replay."),
    "config": ("hotstage.cli.config", "Check or show the configuration; list every key."),
    "bench": ("hotstage.cli.bench", "Measure what probing costs and whether counts are exact."),
}

_OUTPUT_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Of a write to standard output into a file that has no more room."""


class LazyGroup(click.Group):
    """Imports a verb's module when the verb is used: `--help` stays fast, dash and bcc stay away."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(importlib.import_module(VERBS[cmd_name][0]), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError, with the nearest verb, for a verb that there is not."""
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            near = ["--help" if each == "help" else each for each in _nearest(name)]
            hint = f"did you mean `hotstage {near[0]}`?" if near else f"there are: {', '.join(VERBS)}"
            ctx.fail(f"no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in VERBS.items()])


def _nearest(name: str) -> list[str]:
    return difflib.get_close_matches(name, [*VERBS, "help"], 1)


class Context:
    """What the verbs share: where the configuration comes from."""

    def __init__(self, config_file: Path | None) -> None:
        self.config_file = config_file


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="HOTSTAGE_CONFIG",
    show_envvar=True,
    help="Configuration file instead of /etc/hotstage/config.toml.",
)
@click.version_option(__version__, prog_name="hotstage")
@click.pass_context
def cli(ctx: click.Context, config_file: Path | None) -> None:
    """eBPF observability for GPU hosts that serve multimodal models."""
    ctx.obj = Context(config_file)


def _leave_output() -> None:
    """What is still buffered goes nowhere; the interpreter would try again at its end, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def main(arguments: list[str] | None = None) -> None:
    """Run a verb; a HotstageError becomes its message, its remedy and its exit code, never a traceback."""
    try:
        outcome: Any = cli.main(args=arguments, prog_name="hotstage", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except HotstageError as error:
        say(f"hotstage: {error.message}", err=True)
        if error.remedy:
            say(f"  remedy: {error.remedy}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        if error.filename is not None or error.errno not in _OUTPUT_REFUSED:
            raise
        _leave_output()
        say(f"hotstage: the output cannot be written: {error.strerror}", err=True)
        say("  remedy: make room where it goes, or send it elsewhere", err=True)
        sys.exit(1)
    sys.exit(outcome if isinstance(outcome, int) else 0)
