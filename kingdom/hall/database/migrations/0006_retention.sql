-- How long rooms keep their messages that have a time of their own, and up to which message a history was cut.
CREATE TABLE hall_retention (
    room_id uuid PRIMARY KEY REFERENCES rooms (id),
    days integer NOT NULL
);

CREATE TABLE hall_cuts (
    room_id uuid PRIMARY KEY REFERENCES rooms (id),
    message_id varchar(26) NOT NULL
);
