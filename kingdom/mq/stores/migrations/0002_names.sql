-- Each message's name (all that changes during its life, see kingdom/mq/names.py), the log of changes that
-- the tables have not taken in yet, and what is remembered of requests. Rows of an older database get their names here.

ALTER TABLE {{msg_index_table}} ADD COLUMN name TEXT;

UPDATE {{msg_index_table}} SET name = printf(
  '%07d-%013d-%08d-%d%s-%s',
  1000000 - max(-1000000, min(1000000, priority)),
  CASE state WHEN 'inflight' THEN coalesce(lease_until, available_at) ELSE available_at END,
  0,
  attempt,
  CASE state WHEN 'dlq' THEN '.rHANDLER_ERROR.a' || available_at ELSE '' END,
  lower(substr(message_key, -36))
);

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
