# SPDX-License-Identifier: Apache-2.0
import numpy as np
from support.kernel_rows import MS, SECOND, KernelRequest, Stage, sample

from hotstage.stages.ledger import Ledger
from hotstage.stages.pulse import NameTable

START = 50 * SECOND


def advance(ledger, at_ns, requests=(), finished=()):
    rows = sample(at_ns, requests=requests, finished=finished)
    return ledger.advance(at_ns, rows.requests, rows.finished)


def test_an_entry_that_the_map_yields_twice_is_one_request():
    request = KernelRequest(1, at_ns=START).begin(Stage.tokenize, START).end(Stage.tokenize, START + MS)
    step = advance(Ledger(NameTable()), START + 2 * MS, [request, request])
    assert len(step.requests_open) == len(step.ended) == 1


def test_an_entry_that_is_still_being_filled_in_is_left_alone():
    request = KernelRequest(1, at_ns=0)
    assert len(advance(Ledger(NameTable()), START, [request]).requests_open) == 0


def test_the_same_id_in_two_containers_is_two_requests():
    pair = [KernelRequest(1, at_ns=START, cgroup=cgroup) for cgroup in (1, 2)]
    assert len(advance(Ledger(NameTable()), START, pair).requests_open) == 2


def test_a_counter_that_wraps_counts_on():
    ledger, request = Ledger(NameTable()), KernelRequest(1, at_ns=START)
    slot = request.row["stages"][Stage.sample]
    slot["count"], slot["total_ns"] = 65535, 5 * MS
    advance(ledger, START, [request])
    slot["count"], slot["total_ns"] = 1, 9 * MS
    step = advance(ledger, START + 100 * MS, [request])
    assert step.ended["count"].tolist() == [2]
    assert step.ended["duration_ns"].tolist() == [4 * MS]


def test_tokens_of_a_second_span_are_its_own():
    ledger, request = Ledger(NameTable()), KernelRequest(1, at_ns=START)
    slot = request.row["stages"][Stage.vision_encode]
    slot["count"], slot["total_ns"], slot["tokens"] = 1, 5 * MS, 100
    assert advance(ledger, START, [request]).ended["tokens"].tolist() == [100]
    slot["count"], slot["total_ns"], slot["tokens"] = 2, 9 * MS, 170
    assert advance(ledger, START + MS, [request]).ended["tokens"].tolist() == [70]


def test_a_decode_without_tokens_of_its_own_takes_the_output_so_far():
    request = KernelRequest(1, at_ns=START).begin(Stage.llm_decode, START)
    request.row["output_tokens"] = 23
    assert advance(Ledger(NameTable()), START + MS, [request]).open["tokens"].tolist() == [23]


def test_a_thousand_requests_that_vanish_leave_nothing_behind():
    ledger = Ledger(NameTable())
    advance(ledger, START, [KernelRequest(number, at_ns=START) for number in range(1, 1001)])
    lost = sum(len(advance(ledger, START + look * MS).requests_ended) for look in range(1, 20))
    assert lost == 1000
    assert len(ledger._known.key) == 0


def test_random_lives_are_told_exactly_once():
    """Against a count kept by hand: 61 requests, ends spread over looks, in flight and finished."""
    source, ledger = np.random.default_rng(5), Ledger(NameTable())
    requests = {n: KernelRequest(n, at_ns=START + n) for n in range(1, 62)}
    made, told, now = 0, 0, START + SECOND
    while requests:
        now += 100 * MS
        finished = []
        for number in list(requests):
            request = requests[number]
            if source.random() < 0.5:
                stage = int(source.integers(0, 18))
                request.begin(stage, now - 9 * MS).end(stage, now - 4 * MS)
                made += 1
            if source.random() < 0.1:
                finished.append(requests.pop(number).finished(now - MS))
        told += int(advance(ledger, now, requests.values(), finished).ended["count"].sum())
    assert told == made > 61
