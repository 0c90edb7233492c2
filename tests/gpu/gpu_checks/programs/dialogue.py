# SPDX-License-Identifier: Apache-2.0
"""One JSON object a line in, one out: how a check tells a program what to do. Standard library only.

Libraries may print what they like: the dialogue has a descriptor of its own, standard output goes to the log.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

Answer = dict[str, Any]
Verb = Callable[..., Answer]


def serve(verbs: Mapping[str, Verb]) -> None:
    """Answer `{"do": verb, …}` until the input closes; an exception is an answer, not the end."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        verb = order.pop("do")
        try:
            answer = verbs[verb](**order)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)
    answers.close()
