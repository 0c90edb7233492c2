-- SPDX-License-Identifier: Apache-2.0
-- A snapshot has an id of its own and may have several causes: windows that opened, breakers that opened.

ALTER TABLE snapshots RENAME TO snapshots_of_windows;

CREATE TABLE snapshots (
    id       TEXT PRIMARY KEY,
    wall_ns  INTEGER NOT NULL,
    requests INTEGER,                       -- NULL: stored before they were counted
    threads  INTEGER,
    unclean  INTEGER,
    encoding TEXT NOT NULL CHECK (encoding IN ('json', 'zlib')),
    bytes    INTEGER NOT NULL,              -- of body
    body     BLOB NOT NULL
) STRICT;
CREATE INDEX snapshots_by_time ON snapshots (wall_ns);

CREATE TABLE snapshot_causes (
    snapshot_id TEXT NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    kind        TEXT NOT NULL CHECK (kind IN ('window', 'breaker')),
    name        TEXT NOT NULL,              -- the window's id or the breaker's name
    window_id   TEXT                        -- the window that it is about, where one is known
) STRICT;
CREATE INDEX snapshot_causes_of ON snapshot_causes (snapshot_id);
-- The first snapshot of a window is the telling one.
CREATE UNIQUE INDEX snapshot_of_window ON snapshot_causes (name) WHERE kind = 'window';

INSERT INTO snapshots (id, wall_ns, encoding, bytes, body)
    SELECT 's-' || window_id, wall_ns, 'json', length(body), body FROM snapshots_of_windows;
INSERT INTO snapshot_causes (snapshot_id, kind, name, window_id)
    SELECT 's-' || window_id, 'window', window_id, window_id FROM snapshots_of_windows;
DROP TABLE snapshots_of_windows;
