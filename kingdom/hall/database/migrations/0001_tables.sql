-- The four tables of the chat. Those of another service stay as they are: see `adopting`. SQLite takes the names of the types as they are and keeps texts; times are UTC.
CREATE TABLE IF NOT EXISTS users (
    id uuid PRIMARY KEY,
    email varchar(320) NOT NULL UNIQUE,
    password_hash text NOT NULL,
    created_at timestamptz(3) NOT NULL
);

CREATE TABLE IF NOT EXISTS rooms (
    id uuid PRIMARY KEY,
    name varchar(100) NOT NULL,
    last_message_id varchar(26),
    last_message_at timestamptz(3),
    created_at timestamptz(3) NOT NULL
);

CREATE TABLE IF NOT EXISTS room_members (
    room_id uuid NOT NULL REFERENCES rooms (id),
    user_id uuid NOT NULL REFERENCES users (id),
    joined_at timestamptz(3) NOT NULL,
    last_read_message_id varchar(26),
    PRIMARY KEY (room_id, user_id)
);

CREATE INDEX IF NOT EXISTS room_members_user ON room_members (user_id);

CREATE TABLE IF NOT EXISTS messages (
    id varchar(26) PRIMARY KEY,
    room_id uuid NOT NULL REFERENCES rooms (id),
    sender_id uuid NOT NULL REFERENCES users (id),
    client_msg_id uuid NOT NULL,
    type varchar(16) NOT NULL,
    content text NOT NULL,
    created_at timestamptz(3) NOT NULL,
    UNIQUE (room_id, sender_id, client_msg_id)
);

CREATE INDEX IF NOT EXISTS messages_room ON messages (room_id, id);
