-- What a user may do, the sessions of each, and the invitations by which people come in.
CREATE TABLE hall_accounts (
    user_id uuid PRIMARY KEY REFERENCES users (id),
    role varchar(16) NOT NULL,
    banned_at timestamptz(3)
);

CREATE TABLE hall_sessions (
    id uuid PRIMARY KEY,
    user_id uuid NOT NULL REFERENCES users (id),
    agent varchar(200) NOT NULL,
    begun_at timestamptz(3) NOT NULL,
    expires_at timestamptz(3) NOT NULL,
    ended_at timestamptz(3)
);

CREATE INDEX hall_sessions_user ON hall_sessions (user_id);

CREATE INDEX hall_sessions_ended ON hall_sessions (ended_at);

CREATE TABLE hall_invites (
    code_hash varchar(64) PRIMARY KEY,
    role varchar(16) NOT NULL,
    made_at timestamptz(3) NOT NULL,
    expires_at timestamptz(3) NOT NULL,
    uses_left integer NOT NULL
);
