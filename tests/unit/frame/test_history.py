# SPDX-License-Identifier: Apache-2.0
import numpy as np

from hotstage.frame import history as history_module
from hotstage.frame.columns import COLUMN_INDEX, COLUMNS
from hotstage.frame.entity import HOST, Entity, EntityKind
from hotstage.frame.frame import Frame
from hotstage.frame.history import History

SECOND = 1_000_000_000


def frame(second, value=None):
    values = np.full((0 if value is None else 1, len(COLUMNS)), np.nan)
    if value is not None:
        values[0, COLUMN_INDEX["inflight"]] = value
    return Frame(second * SECOND, () if value is None else (HOST,), values)


def filled(*frames, seconds=900.0):
    history = History(seconds)
    for each in frames:
        history.append(each)
    return history


def test_a_series_is_in_order_and_ends_now():
    times, values = filled(*(frame(n, n) for n in range(9))).series(HOST, "inflight", 3)
    assert (times // SECOND).tolist() == [6, 7, 8]
    assert values.tolist() == [6, 7, 8]


def test_frames_without_the_entity_are_left_out_and_unknown_stays():
    history = filled(frame(0, 1), frame(1), frame(2, np.nan))
    assert np.array_equal(history.series(HOST, "inflight", 9)[1], [1, np.nan], equal_nan=True)


def test_what_is_too_old_goes():
    history = filled(*(frame(n, n) for n in range(100)), seconds=10)
    assert len(history) == 11
    assert history.latest.at_ns == 99 * SECOND
    assert [each.at_ns // SECOND for each in history.since(97 * SECOND)] == [98, 99]


def test_an_empty_history_has_an_empty_series():
    assert [len(part) for part in History(9).series(HOST, "inflight", 9)] == [0, 0]


def test_it_is_shorter_where_the_frames_are_large(monkeypatch):
    monkeypatch.setattr(history_module, "ROWS_MAX", 30)
    many = tuple(Entity(EntityKind.endpoint, endpoint=f"/{n}") for n in range(9))
    large = [Frame(second * SECOND, many, np.zeros((9, len(COLUMNS)))) for second in range(20, 30)]
    history = filled(*(frame(n, n) for n in range(20)), *large)
    assert [each.at_ns // SECOND for each in history.frames()] == [27, 28, 29]
    huge = tuple(Entity(EntityKind.endpoint, endpoint=f"/{n}") for n in range(99))
    history.append(Frame(30 * SECOND, huge, np.zeros((99, len(COLUMNS)))))
    assert len(history) == 1, "the newest stays, whatever its size"
    for second in range(31, 50):
        history.append(frame(second, 1))
    assert len(history) == 19, "what has gone counts no more"
