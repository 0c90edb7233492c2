# SPDX-License-Identifier: Apache-2.0
"""The vLLM plug-in (entry point `vllm.general_plugins`): vLLM's requests and stages become marks.

vLLM calls `register` in each of its processes. Nothing of vLLM is imported or changed on disk; hooks go onto
its classes when vLLM itself imports them. A version that does not have a name, or has another method under
it, goes without that hook, and one line in the log says so. `HOTSTAGE_VLLM=0` leaves everything as it is.
"""

from __future__ import annotations

import os
from typing import Any, Optional

import hotstage_marks as marks
from hotstage_marks._hooks import LOGGER, Hook, ImportWaiter
from hotstage_marks._vllm_batches import BatchBook
from hotstage_marks._vllm_requests import RequestBook

SWITCH = "HOTSTAGE_VLLM"

SCHEDULER = "vllm.v1.core.sched.scheduler"
RUNNER = "vllm.v1.worker.gpu_model_runner"
NEW_RUNNER = "vllm.v1.worker.gpu.model_runner"
NEW_ENCODER = "vllm.v1.worker.gpu.mm.encoder_runner"


class Plugin:
    """All hooks and what they remember; `hooks` tells which are on."""

    def __init__(self) -> None:
        self.requests = RequestBook()
        self.batches = BatchBook()
        self.hooks = [*self._scheduler_hooks(), *self._runner_hooks()]
        self.waiter = ImportWaiter(self.hooks)

    def _scheduler_hooks(self) -> list[Hook]:
        book = self.requests

        def hook(attribute: str, parameter: str, **functions: Any) -> Hook:
            return Hook(SCHEDULER, "Scheduler", [attribute], parameter=parameter, memory=book, **functions)

        return [
            hook("add_request", "request", after=book.added),
            hook("schedule", "", after=book.scheduled),
            hook("update_from_output", "scheduler_output", after=book.updated),
            hook("_preempt_request", "request", before=book.preempted),
            hook("_free_request", "request", before=book.freed),
        ]

    def _runner_hooks(self) -> list[Hook]:
        book = self.batches
        execute = {"before": book.executing, "after": book.executed}
        sample = {"before": book.sampling, "after": book.sampled}
        encode = {"before": book.encoding, "after": book.encoded}
        encode_items = {"before": book.encoding_items, "after": book.encoded}

        def hook(module: str, owner: str, attributes: str, parameter: str, functions: dict[str, Any]) -> Hook:
            names = attributes.split("|")
            return Hook(
                module, owner, names, parameter=parameter, even_on_error=True, memory=book, **functions
            )

        book.encoders = (
            hook(RUNNER, "GPUModelRunner", "_execute_mm_encoder", "scheduler_output", encode),
            hook(NEW_ENCODER, "EncoderRunner", "execute_mm_encoder", "mm_kwargs", encode_items),
        )
        hooks = list(book.encoders)
        for module in (RUNNER, NEW_RUNNER):
            hooks.append(hook(module, "GPUModelRunner", "execute_model", "scheduler_output", execute))
            hooks.append(hook(module, "GPUModelRunner", "sample_tokens|_sample", "", sample))
        return hooks

    def install(self) -> None:
        self.waiter.install()

    def remove(self) -> None:
        """Every hook off, every method what it was."""
        self.waiter.remove()
        for hook in self.hooks:
            hook.detach()


plugin: Optional[Plugin] = None  # noqa: UP045 - read by Python 3.9


def register() -> None:
    """Called by vLLM, once or more in each process; raises nothing."""
    global plugin  # noqa: PLW0603 - one a process
    try:
        if plugin is not None:
            return
        if os.environ.get(SWITCH, "1").strip().lower() in ("0", "off", "false", "no"):
            LOGGER.info("hotstage marks: off (%s)", SWITCH)
        elif not marks.is_native:
            LOGGER.info("hotstage marks: off: the package was installed without its compiled part")
        else:
            plugin = Plugin()
            plugin.install()
            LOGGER.info("hotstage marks: waiting for vLLM's scheduler and model runner")
    except Exception:
        LOGGER.warning("hotstage marks: off", exc_info=True)
