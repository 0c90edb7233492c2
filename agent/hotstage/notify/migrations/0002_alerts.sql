-- SPDX-License-Identifier: Apache-2.0
-- Alerts that fire at their destination and have to be told again until they end.
CREATE TABLE standing (
    destination TEXT NOT NULL,
    subject     TEXT NOT NULL,
    number      INTEGER NOT NULL,                    -- the newest event that was told
    fingerprint TEXT NOT NULL,                       -- of its labels
    alert       BLOB NOT NULL,                       -- JSON, as it was sent
    due_wall_ns INTEGER NOT NULL,
    PRIMARY KEY (destination, subject)
) STRICT, WITHOUT ROWID;

-- The oldest and the newest event of a subject.
CREATE INDEX deliveries_subject ON deliveries (destination, subject, number);

-- The first event of the store that is read now: nobody will ever end what an earlier store began.
ALTER TABLE progress ADD COLUMN first_number INTEGER NOT NULL DEFAULT 0;

-- What `hotstage webhook list` tells.
ALTER TABLE destinations ADD COLUMN disabled_wall_ns INTEGER;
ALTER TABLE destinations ADD COLUMN delivered_wall_ns INTEGER;       -- the last one
ALTER TABLE destinations ADD COLUMN error TEXT;                      -- of the last failed attempt
ALTER TABLE destinations ADD COLUMN error_wall_ns INTEGER;
