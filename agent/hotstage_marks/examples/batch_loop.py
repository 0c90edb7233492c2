# SPDX-License-Identifier: Apache-2.0
"""A continuous batch with marks: requests join and leave one loop on one thread.

    python batch_loop.py        # reads lines `ID PROMPT_TOKENS OUTPUT_TOKENS` until the end of its input

What to look at: a request begins when it arrives and ends when its last token is out, with `request_begin`
and `request_end`, because no block of code is around it. Each step is a `batch`: the thread is in the stage
that has most of the step's tokens, each member in its own, and what the thread does meanwhile is shared out
by the tokens. A stage inside it takes the thread for a while; its share goes the same way. An adapter is told
with its rank and the matrix that it changes.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass

import hotstage_marks as marks

MAX_BATCH = 16


@dataclass
class Request:
    rid: str
    prompt: int
    wanted: int
    queued: marks.Scope
    done: int = 0


def arrive(line: str) -> Request:
    rid, prompt, wanted = line.split()
    marks.request_begin(rid, endpoint="/v1/completions", model="toy-llm")
    with marks.stage("lora_apply", modality="text", lora_rank=16, lora_module="q_proj", request=rid):
        pass  # the adapter would be loaded here
    queued = marks.span("queue", modality="text", request=rid).begin()
    return Request(rid, int(prompt), int(wanted), queued)


def step(running: list[Request]) -> None:
    members = [
        (each.rid, "llm_decode", 1) if each.done else (each.rid, "llm_prefill", each.prompt)
        for each in running
    ]
    with marks.batch(members, modality="text"):
        with marks.stage(
            "draft_tokens", modality="text", request=""
        ):  # this server's own, and nobody's alone
            pass  # the draft model would run here
        for each in running:  # the model would run here, once for all of them
            each.done += 1
    for each in running:
        marks.tokens(each.done, request=each.rid)


def main() -> None:
    waiting = deque(arrive(line) for line in sys.stdin)
    running: list[Request] = []
    while waiting or running:
        while waiting and len(running) < MAX_BATCH:
            waiting[0].queued.end()
            running.append(waiting.popleft())
        step(running)
        for each in [each for each in running if each.done >= each.wanted]:
            marks.request_end(each.rid, output_tokens=each.done)
            running.remove(each)


if __name__ == "__main__":
    print("ready", flush=True)
    main()
    print("done", flush=True)
