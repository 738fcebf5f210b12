-- What was removed, by which item of the history, and who ordered what.
CREATE TABLE hall_removals (
    message_id varchar(26) PRIMARY KEY REFERENCES messages (id),
    item_id varchar(26) NOT NULL UNIQUE REFERENCES messages (id)
);

CREATE TABLE hall_audit (
    command_id uuid PRIMARY KEY,
    at timestamptz(3) NOT NULL,
    ordered_by varchar(320) NOT NULL,
    command varchar(32) NOT NULL,
    target varchar(64) NOT NULL
);
