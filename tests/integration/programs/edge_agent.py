# SPDX-License-Identifier: Apache-2.0
"""The publishing edge of an agent as a process to be killed: store, journal, page, API; no probes.

Orders on standard input, one a line: `trip N` moves breaker N, `open ID` and `close ID` a window, `end`
stops. Answers, JSON lines: `ready`, then `page` (published) and `committed` (on disk) for each trip. With
`--die POINT` it kills itself at that point of its second commit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from hotstage.api.access import Access
from hotstage.api.overrides import OverrideDesk
from hotstage.api.routes import Api, Router
from hotstage.api.server import ApiServer
from hotstage.api.view import Health, Sources, View, ViewCell
from hotstage.breaker.page import BreakerPage
from hotstage.breaker.record import BreakerRecord, BreakerState, Transition
from hotstage.clock import SystemClock, boot_id
from hotstage.config.settings import HttpConfig, PageConfig, StoreConfig
from hotstage.daemon.publisher import Publisher
from hotstage.detect.finding import Severity
from hotstage.frame.entity import Entity, EntityKind
from hotstage.sinks.events import EventMaker
from hotstage.store.deliveries import Deliveries
from hotstage.store.store import Store
from hotstage.windows.window import AnomalyWindow, Candidate, Cause, WindowUpdate


def say(**fields):
    print(json.dumps(fields), flush=True)


def die():
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(10)


class MortalStore(Store):
    """Dies where it is told to, at its second commit."""

    point = None
    commits = 0

    def commit(self, many):
        self.commits += 1
        dies = self.commits == 2
        if dies and self.point == "before-commit":
            die()
        if dies and self.point == "inside-commit":
            with self.database.transaction() as cursor:
                cursor.execute("INSERT INTO meta VALUES ('half-written', 'x')")
                super_commit_in(cursor, many)
                die()
        super().commit(many)
        if dies and self.point == "after-commit":
            die()


def super_commit_in(cursor, many):
    from hotstage.store import breakers, outbox

    for changes in many:
        for transition in changes.transitions:
            breakers.append(cursor, transition, changes.wall_offset_ns)
        outbox.append(cursor, changes.events)


def window(name, now_ns, closed_ns=None):
    entity = Entity(EntityKind.stage, stage="vision_encode", modality="image")
    cause = Cause("stage_latency", "slow", 0.9, (Candidate("stage_latency", 0.9, "10 x", entity),))
    return AnomalyWindow(
        name, "stage_latency", Severity.warning, entity, now_ns, now_ns, now_ns, closed_ns, 3.0, cause, (), 1
    )


class Edge:
    def __init__(self, directory: Path, point):
        self.clock = clock = SystemClock()
        store = MortalStore(directory / "state", clock, boot_id())
        store.point = point
        maker = EventMaker("host-1")
        interrupted = store.begin_run(
            lambda stored: maker.window_closed(stored.window, stored.wall_offset_ns, is_interrupted=True)
        )
        page = BreakerPage(directory / "breakers", boot_id(), 5_000_000_000)
        self.publisher = Publisher(
            store, page, maker, clock, store_config=StoreConfig(), page_config=PageConfig()
        )
        self.records = {record.name: record for record in store.restored_breakers()}
        self.publisher.know(self.records.values())
        self.publisher.page(self.records.values(), clock.monotonic_ns())
        config = HttpConfig(listen="127.0.0.1:0", socket=str(directory / "agent.sock"))
        self.cell = ViewCell("host-1", clock)
        sources = Sources(
            coverage=dict, snapshot=dict, requests=lambda *_: {}, frames=lambda *_: {},
            metrics=lambda _: (b"", "text/plain"), health=lambda: Health("ok", {}),
            is_ready=lambda: (True, {}),
        )  # fmt: skip
        api = Api(
            self.cell, sources, store, Access.of(config), clock, self.publisher.stream,
            self.publisher.outbox_bell, OverrideDesk(), Deliveries(),
        )  # fmt: skip
        self.store = store
        self.server = ApiServer(config, Router(api))
        self.server.start()
        self.publisher.start()
        left_open = [stored.window.id for stored in interrupted]
        say(event="ready", port=self.server.port, interrupted=left_open)

    def trip(self, number):
        decided_ns = self.clock.monotonic_ns()
        name = f"stage:s{number}:image"
        scope = Entity(EntityKind.stage, stage=f"s{number}", modality="image")
        before = self.records.get(name) or BreakerRecord(name, scope, enforced=True)
        to = BreakerState.closed if before.state is BreakerState.open else BreakerState.open
        move = Transition(name, scope, before.state, to, decided_ns, "test", enforced=True)
        self.records[name] = BreakerRecord(
            name, scope, True, state=to, since_ns=decided_ns, updated_ns=decided_ns, transitions=(move,)
        )
        records = tuple(self.records.values())
        self.publisher.page(records, decided_ns)
        paged_ns = self.clock.monotonic_ns()
        say(event="page", name=name, to=to.value, seconds=(paged_ns - decided_ns) / 1e9)
        self.publisher.changes(decided_ns, WindowUpdate(), (move,), records, dict)
        self.cell.swap(View(1, decided_ns, breakers=records))
        self.await_commit(name=name, to=to.value)

    def windows(self, update):
        self.publisher.changes(self.clock.monotonic_ns(), update, (), (), dict)
        self.await_commit(windows=True)

    def await_commit(self, **fields):
        waiting = threading.Event()
        while self.publisher.journal_state().pending:
            waiting.wait(0.0005)
        say(event="committed", **fields)

    def obey(self, line):
        order, _, argument = line.strip().partition(" ")
        now_ns = self.clock.monotonic_ns()
        if order == "trip":
            self.trip(argument)
        elif order == "open":
            self.windows(WindowUpdate(opened=(window(argument, now_ns),)))
        elif order == "close":
            self.windows(WindowUpdate(closed=(window(argument, now_ns, now_ns),)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--die", dest="point")
    options = parser.parse_args()
    sys.setswitchinterval(0.0005)
    edge = Edge(options.directory, options.point)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        edge.obey(line)
    edge.publisher.close()
    edge.server.stop()
    edge.store.close()


main()
