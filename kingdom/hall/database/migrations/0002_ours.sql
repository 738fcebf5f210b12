-- What the four tables of the chat have no column for.
CREATE TABLE hall_message_positions (
    message_id varchar(26) PRIMARY KEY REFERENCES messages (id),
    topic varchar(249) NOT NULL,
    position text NOT NULL
);

CREATE TABLE hall_profiles (
    user_id uuid PRIMARY KEY REFERENCES users (id),
    name varchar(100) NOT NULL
);
