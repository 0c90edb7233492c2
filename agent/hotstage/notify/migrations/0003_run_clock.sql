-- SPDX-License-Identifier: Apache-2.0
-- Times named _run_ns are on the notifier's own clock: nanoseconds that it has run since this file was made.
-- No step of the wall clock moves them, and they go on after a restart of the notifier or of the machine.
CREATE TABLE run_clock (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    run_ns   INTEGER NOT NULL
) STRICT;
INSERT INTO run_clock VALUES (1, 0);

ALTER TABLE deliveries ADD COLUMN since_run_ns INTEGER NOT NULL DEFAULT 0;   -- queued, or replayed
ALTER TABLE deliveries ADD COLUMN due_run_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries DROP COLUMN due_wall_ns;
ALTER TABLE standing ADD COLUMN due_run_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE standing DROP COLUMN due_wall_ns;
