# SPDX-License-Identifier: Apache-2.0
"""Batches in, requests with their shares out: exact sums, once each, whatever comes in which order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.kernel_rows import MS, SECOND, KernelRequest, Stage, sample

from hotstage.probes.maps.layout import BATCH_EVENT_DTYPE, UNKNOWN_NS, UNKNOWN_US
from hotstage.stages.shares import PARTS_LIMIT, UNCLAIMED, BatchShares
from hotstage.stages.tracker import Tracker

START = 1_000 * SECOND


def batch(members, *, total=None, launches=100, sync_ns=0, run_queue_ns=0, ended_ns=START + MS, **others):
    """`members`: (request, tokens, stage) each."""
    row = np.zeros(1, BATCH_EVENT_DTYPE)[0]
    row["tgid"], row["tid"], row["cgroup_id"] = 100, others.get("tid", 101), 1
    row["began_ns"], row["ended_ns"] = others.get("began_ns", ended_ns - MS), ended_ns
    row["context"], row["device"] = others.get("context", 0), 1
    row["work"]["launches"], row["work"]["bytes"] = launches, 10 * launches
    row["work"]["sync_ns"], row["work"]["run_queue_ns"] = sync_ns, run_queue_ns
    row["batch"]["word"], row["batch"]["members"] = others.get("word", Stage.llm_decode), len(members)
    row["batch"]["tokens_total"] = sum(tokens for _, tokens, _ in members) if total is None else total
    for place, (request, tokens, stage) in enumerate(members):
        member = row["batch"]["member"][place]
        member["request_hash"], member["tokens"], member["stage"] = request, tokens, stage
    return row


def look(shares, requests, batches=(), finished=(), at_ns=START + 2 * MS):
    taken = sample(at_ns, requests=requests, finished=finished)
    return shares.apply(replace(taken, batches=np.array(list(batches), BATCH_EVENT_DTYPE)))


def test_work_is_split_by_tokens_and_stays_with_the_request_to_its_end():
    shares, decode = BatchShares(), Stage.llm_decode
    one = KernelRequest(1, at_ns=START).begin(decode, START)
    two = KernelRequest(2, at_ns=START).begin(decode, START)
    one.row["launches"] = 5
    first = look(shares, [one, two], [batch([(1, 1, decode), (2, 3, decode)], sync_ns=8 * MS)])
    assert first.requests["launches"].tolist() == [30.0, 75.0]
    assert first.requests["bytes"].tolist() == [250.0, 750.0]
    assert first.requests["stages"]["sync_us"][:, decode].tolist() == [2000, 6000]
    assert first.shares["launches"].tolist() == [25.0, 75.0]
    again = look(shares, [one, two])
    assert again.requests["launches"].tolist() == [30.0, 75.0]
    ended = look(shares, [two], finished=[one.end(decode, START + MS).finished(START + 3 * MS)])
    assert (ended.finished["launches"].tolist(), ended.requests["launches"].tolist()) == ([30.0], [75.0])


def test_the_ledger_tells_of_the_wait_once():
    shares, tracker, decode = BatchShares(), Tracker(is_alive=lambda pid: True), Stage.llm_decode
    request = KernelRequest(1, at_ns=START).begin(decode, START)
    step = batch([(1, 1, decode)], sync_ns=4 * MS, run_queue_ns=UNKNOWN_NS)
    tracker.advance(look(shares, [request], [step]))
    request.end(decode, START + 5 * MS)
    ended = tracker.advance(look(shares, [request])).ended
    assert ended["sync_ns"].tolist() == [4e6]
    assert np.isnan(ended["run_queue_ns"]).all()
    request.begin(decode, START + 6 * MS).end(decode, START + 7 * MS)
    again = tracker.advance(look(shares, [request], [batch([(1, 1, decode)], sync_ns=MS, tid=102)]))
    assert again.ended["sync_ns"].tolist() == [1e6]
    assert again.requests_open["launches"].tolist() == [200.0]


def test_a_batch_in_parts_is_worth_no_more_than_itself():
    shares = BatchShares()
    requests = [KernelRequest(number, at_ns=START) for number in (1, 2)]
    parts = [batch([(1, 6, 13)], total=10), batch([(2, 9, 13)], total=10), batch([(2, 9, 13)], total=10)]
    first = look(shares, requests, parts[:2])
    assert first.requests["launches"].tolist() == pytest.approx([60.0, 40.0])
    assert look(shares, requests, parts[2:]).requests["launches"].tolist() == pytest.approx([60.0, 40.0])


def test_a_share_that_comes_before_its_request_waits_for_one_look():
    shares, step = BatchShares(), batch([(1, 1, 13)])
    assert look(shares, [], [step]).losses[UNCLAIMED] == 0
    assert look(shares, [KernelRequest(1, at_ns=START)]).requests["launches"].tolist() == [100.0]
    assert look(shares, [], [batch([(2, 1, 13)])]).losses[UNCLAIMED] == 0
    assert look(shares, []).losses[UNCLAIMED] == 1


def test_an_id_that_came_back_gets_what_was_done_in_its_own_time():
    shares = BatchShares()
    old = KernelRequest(1, at_ns=START).finished(START + 3 * MS)
    new = KernelRequest(1, at_ns=START + 4 * MS)
    found = look(shares, [new], [batch([(1, 1, 13)])], finished=[old])
    assert (found.finished["launches"].tolist(), found.requests["launches"].tolist()) == ([100.0], [0.0])


def test_the_context_of_the_batch_is_bound_to_the_members_stage():
    found = look(BatchShares(), [KernelRequest(1, at_ns=START)], [batch([(1, 1, 13)], context=0xC0)])
    bound = found.requests["contexts"][0]
    assert (bound["context"][0], bound["device"][0], bound["stage_mask"][0]) == (0xC0, 1, 1 << 13)


def test_nothing_said_is_nothing_given():
    found = look(BatchShares(), [KernelRequest(1, at_ns=START)], [batch([(1, 0, 13)], total=0)])
    assert found.requests["launches"].tolist() == [0.0]
    assert found.requests["stages"]["sync_us"][0, 13] in (0, UNKNOWN_US)


def test_members_may_say_any_stage_and_modality():
    """A hostile process's record is copied as it is; the tick goes on, and so do everybody's shares."""
    shares, decode = BatchShares(), Stage.llm_decode
    request = KernelRequest(1, at_ns=START).begin(decode, START)
    lies = [batch([(1, 1, stage)], launches=1, tid=stage, word=stage << 8 | stage) for stage in range(256)]
    for row in lies:
        row["batch"]["member"]["modality"] = 200
    found = look(shares, [request], lies)
    assert found.requests["launches"].tolist() == [256.0]
    assert set(found.shares["stage"].tolist()) == {*range(18), *range(32, 64), 255}
    assert found.shares["batch_stage"].tolist() == found.shares["stage"].tolist()
    assert {*found.shares["modality"].tolist(), *found.shares["batch_modality"].tolist()} == set(range(6))
    assert look(shares, [request]).requests["launches"].tolist() == [256.0]


@pytest.mark.parametrize(("total", "members"), [(0, 3), (2**32 - 1, 65535), (1, 65535)])
def test_totals_that_lie_give_no_more_than_the_work(total, members):
    shares = BatchShares()
    lie = batch([(1, 2**32 - 1, 13), (2, 5, 13)], total=total)
    lie["batch"]["members"] = lie["batch"]["members_total"] = members
    found = look(shares, [KernelRequest(number, at_ns=START) for number in (1, 2)], [lie])
    assert 0 <= found.requests["launches"].sum() <= 100 + 1e-6
    assert np.isfinite(found.requests["launches"]).all()


def test_one_process_that_tells_of_batches_without_end_takes_nobody_elses_shares():
    shares = BatchShares()
    flood = [batch([(1, 1, 13)], tid=number) for number in range(PARTS_LIMIT + 10)]
    honest = batch([(2, 1, 13)], tid=5000)
    honest["tgid"] = 55
    found = look(shares, [KernelRequest(number, at_ns=START) for number in (1, 2)], [*flood, honest])
    assert found.requests["launches"].tolist() == [100.0 * PARTS_LIMIT, 100.0]
    assert found.losses[UNCLAIMED] == 10
