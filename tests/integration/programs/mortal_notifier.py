# SPDX-License-Identifier: Apache-2.0
"""The real notifier, which kills itself at a named point: `--die before-hold`, `after-hold`, `after-post`, ….

Configuration as JSON on the command line. It prints `ready` and runs until it dies or is ended.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import time

import msgspec

from hotstage.config.notify import NotifyConfig
from hotstage.notify import process
from hotstage.notify.db import NotifyDatabase
from hotstage.notify.post import Poster
from hotstage.notify.pull import Agent
from hotstage.service import NoManager

POINTS = {
    "hold": (NotifyDatabase, "hold"),
    "acknowledge": (Agent, "acknowledge"),
    "post": (Poster, "post"),
    "record": (NotifyDatabase, "delivered"),
}


def die():
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(10)


def arm(point: str) -> None:
    when, _, what = point.partition("-")
    owner, name = POINTS[what]
    original = getattr(owner, name)

    @functools.wraps(original)
    def mortal(*arguments, **named):
        if when == "before":
            die()
        result = original(*arguments, **named)
        die()
        return result

    setattr(owner, name, mortal)


parser = argparse.ArgumentParser()
parser.add_argument("config")
parser.add_argument("--die")
options = parser.parse_args()
if options.die:
    arm(options.die)
print("ready", flush=True)
settings = msgspec.json.decode(options.config, type=NotifyConfig)
process.run(settings, NoManager(), lambda: settings)
