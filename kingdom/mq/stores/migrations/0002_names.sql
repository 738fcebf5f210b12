-- Each message's name (all that changes during its life, see kingdom/mq/names.py), the log of changes that
-- the tables have not taken in yet, and what is remembered of requests.

ALTER TABLE {{msg_index_table}} ADD COLUMN name TEXT;

CREATE TABLE msg_log (
  position INTEGER PRIMARY KEY,
  message_key TEXT NOT NULL,
  queue TEXT NOT NULL,
  state TEXT NOT NULL,
  name TEXT NOT NULL,
  body TEXT
);

CREATE TABLE msg_memo (
  position INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  at INTEGER NOT NULL,
  queue TEXT NOT NULL,
  key TEXT NOT NULL,
  ids TEXT NOT NULL
);
