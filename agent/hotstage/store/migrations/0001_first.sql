-- SPDX-License-Identifier: Apache-2.0
-- Times named _wall_ns are UTC nanoseconds; _monotonic_ns is CLOCK_MONOTONIC of the boot beside it.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE runs (
    run_id          INTEGER PRIMARY KEY AUTOINCREMENT,
    boot_id         TEXT NOT NULL,
    started_wall_ns INTEGER NOT NULL,
    stopped_wall_ns INTEGER                 -- NULL: running, or killed
) STRICT;

CREATE TABLE windows (
    id              TEXT PRIMARY KEY,
    kind            TEXT NOT NULL,
    severity        TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('open', 'closed', 'interrupted')),
    opened_wall_ns  INTEGER NOT NULL,
    updated_wall_ns INTEGER NOT NULL,
    closed_wall_ns  INTEGER,                -- NULL exactly while open
    wall_offset_ns  INTEGER NOT NULL,       -- wall minus monotonic: dates the monotonic times inside body
    body            BLOB NOT NULL,          -- the window as JSON
    CHECK ((state = 'open') = (closed_wall_ns IS NULL))
) STRICT;
CREATE INDEX windows_by_time ON windows (opened_wall_ns);
CREATE INDEX windows_open ON windows (state) WHERE state = 'open';

CREATE TABLE breakers (
    name         TEXT PRIMARY KEY,
    boot_id      TEXT NOT NULL,
    monotonic_ns INTEGER NOT NULL,          -- when the record was written, on both clocks
    wall_ns      INTEGER NOT NULL,
    record       BLOB NOT NULL              -- the breaker as JSON
) STRICT;

CREATE TABLE transitions (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    breaker TEXT NOT NULL,
    wall_ns INTEGER NOT NULL,
    body    BLOB NOT NULL
) STRICT;
CREATE INDEX transitions_by_breaker ON transitions (breaker, seq);

-- AUTOINCREMENT: a sequence number is never given out twice, even after its row was acknowledged and deleted.
CREATE TABLE outbox (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    type       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    created_ns INTEGER NOT NULL,            -- wall
    body       BLOB NOT NULL
) STRICT;

CREATE TABLE snapshots (
    window_id TEXT PRIMARY KEY,
    wall_ns   INTEGER NOT NULL,
    body      BLOB NOT NULL
) STRICT;
