-- SPDX-License-Identifier: Apache-2.0
-- Who switched all probes off or on, when and why.

CREATE TABLE switches (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    wall_ns INTEGER NOT NULL,
    state   TEXT NOT NULL CHECK (state IN ('off', 'on')),
    actor   TEXT NOT NULL,
    reason  TEXT                            -- NULL: none was given
) STRICT;
