-- SPDX-License-Identifier: Apache-2.0
-- Times named _wall_ns are UTC nanoseconds.

-- How far the agent's outbox was read. Another store_id is another count of seq.
CREATE TABLE progress (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    store_id TEXT NOT NULL,
    seq      INTEGER NOT NULL
) STRICT;

CREATE TABLE events (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,   -- order of arrival
    id         TEXT NOT NULL UNIQUE,
    seq        INTEGER NOT NULL,
    type       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    created_ns INTEGER NOT NULL,                     -- wall, by the agent
    body       BLOB NOT NULL
) STRICT;

CREATE TABLE deliveries (
    destination   TEXT NOT NULL,
    number        INTEGER NOT NULL REFERENCES events (number) ON DELETE CASCADE,
    subject       TEXT NOT NULL,
    state         TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead')),
    since_wall_ns INTEGER NOT NULL,                  -- queued, or replayed
    due_wall_ns   INTEGER NOT NULL,
    attempts      INTEGER NOT NULL DEFAULT 0,
    ended_wall_ns INTEGER,
    error         TEXT,                              -- of the last attempt
    PRIMARY KEY (destination, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_waiting ON deliveries (destination, subject, number) WHERE state = 'pending';
CREATE INDEX deliveries_ended ON deliveries (ended_wall_ns) WHERE state != 'pending';

CREATE TABLE destinations (
    name           TEXT PRIMARY KEY,
    url            TEXT NOT NULL,                    -- without user, password, query: tells a changed target
    disabled_error TEXT,                             -- NULL: in use
    delivered      INTEGER NOT NULL DEFAULT 0,
    failed         INTEGER NOT NULL DEFAULT 0,
    dead           INTEGER NOT NULL DEFAULT 0
) STRICT;
