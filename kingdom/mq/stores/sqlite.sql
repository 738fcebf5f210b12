-- Every statement of the sqlite and hybrid stores. {{kv_table}} and {{msg_index_table}} are named in the configuration.
--
-- kv holds the messages, msg_index their states. Both are written behind: what a group of requests changes goes to
-- the end of msg_log in one transaction, and from there into the two tables: at once while little happens, else when
-- there are many or after a second, a part in each transaction until there are none; then the log is emptied in parts.
-- A message that is published, leased and acknowledged meanwhile never touches them. Large bodies go to kv right away.

-- name: append_log
-- a change of state; with a body when that is new, an empty one when it is large; the state gone ends it
INSERT INTO msg_log (message_key, queue, state, name, body) VALUES (?, ?, ?, ?, ?);

-- name: select_min_of_log
SELECT min(position) FROM msg_log;

-- name: select_max_of_log
SELECT max(position) FROM msg_log;

-- name: trim_log
-- what these lines say stands in the tables now
DELETE FROM msg_log WHERE position <= ?;

-- name: select_log
SELECT message_key, queue, state, name, body FROM msg_log ORDER BY position;

-- name: upsert_body
INSERT INTO {{kv_table}} (key, value, value_type, created_at, updated_at, expires_at) VALUES (?, ?, 'message', ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at;

-- name: delete_body
-- acknowledged, expired or purged
DELETE FROM {{kv_table}} WHERE key = ?;

-- name: select_body
SELECT value FROM {{kv_table}} WHERE key = ?;

-- name: upsert_state
INSERT INTO {{msg_index_table}}
  (queue, state, priority, available_at, lease_until, attempt, message_key, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (message_key) DO UPDATE SET
  state = excluded.state, priority = excluded.priority, available_at = excluded.available_at,
  lease_until = excluded.lease_until, attempt = excluded.attempt, name = excluded.name;

-- name: delete_state
DELETE FROM {{msg_index_table}} WHERE message_key = ?;

-- name: release_due
-- delayed messages that are due are called ready
UPDATE {{msg_index_table}} SET state = 'ready' WHERE message_key IN (
  SELECT message_key FROM {{msg_index_table}}
  WHERE queue = ? AND state = 'delayed' AND available_at <= ? ORDER BY available_at LIMIT ?
);

-- name: select_queues
-- from each one to the next by the index; DISTINCT would read the whole of it
WITH RECURSIVE found (queue) AS (
  SELECT min(queue) FROM {{msg_index_table}}
  UNION ALL
  SELECT (SELECT min(queue) FROM {{msg_index_table}} WHERE queue > found.queue) FROM found WHERE queue IS NOT NULL
)
SELECT queue FROM found WHERE queue IS NOT NULL;

-- name: select_names
-- by the primary key, which keeps the messages of a queue together: faster than any other index when most are wanted;
-- all in one text, because a million rows take longer to fetch than to split
SELECT group_concat(name, char(10)) FROM {{msg_index_table}}
WHERE message_key >= ? AND message_key < ? AND +queue = ? AND +state IN ('ready', 'delayed');

-- name: select_inflight
SELECT group_concat(name, char(10)) FROM {{msg_index_table}} WHERE state = 'inflight' AND queue = ?;

-- name: select_dead
SELECT group_concat(name, char(10)) FROM {{msg_index_table}} WHERE state = 'dlq' AND queue = ?;

-- name: select_stateless
-- a message without a state: only a foreign hand can leave one
SELECT key FROM {{kv_table}} WHERE key >= 'msg:' AND key < 'msg;'
AND NOT EXISTS (SELECT 1 FROM {{msg_index_table}} WHERE message_key = key);

-- name: select_bodiless
-- a state without a message: only a foreign hand can leave one
SELECT queue, message_key FROM {{msg_index_table}}
WHERE NOT EXISTS (SELECT 1 FROM {{kv_table}} WHERE key = message_key);

-- name: select_misstated
-- no state at all, or another one than the name tells: an archived message's name has neither lease nor reason
SELECT queue, message_key, name, state FROM {{msg_index_table}} WHERE name IS NOT NULL AND NOT CASE state
  WHEN 'inflight' THEN instr(name, '.l') > 0
  WHEN 'dlq' THEN instr(name, '.r') > 0 AND instr(name, '.l') = 0
  WHEN 'ready' THEN instr(name, '.r') = 0 AND instr(name, '.l') = 0
  WHEN 'delayed' THEN instr(name, '.r') = 0 AND instr(name, '.l') = 0
  ELSE state = 'archived'
END;

-- name: set_state
UPDATE {{msg_index_table}} SET state = ? WHERE message_key = ?;

-- name: forget_name
UPDATE {{msg_index_table}} SET name = NULL WHERE message_key = ?;

-- name: set_queue
UPDATE {{msg_index_table}} SET queue = ? WHERE message_key = ?;

-- name: select_foreign
SELECT queue, message_key FROM {{msg_index_table}} WHERE name IS NULL;

-- name: select_archived
SELECT queue, message_key FROM {{msg_index_table}} WHERE state = 'archived' AND available_at <= ?;

-- name: select_some_archived
SELECT name FROM {{msg_index_table}} WHERE state = 'archived' AND queue = ? LIMIT ?;

-- name: save_record
-- a queue's policy, and settings of the store
INSERT INTO {{kv_table}} (key, value, value_type, created_at, updated_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at;

-- name: select_policies
-- the second condition is that of idx_kv_type: without it all messages would be read
SELECT substr(key, 8), value FROM {{kv_table}} WHERE value_type = 'policy' AND value_type <> 'message';

-- name: select_setting
SELECT value FROM {{kv_table}} WHERE key = ?;

-- name: append_entry
-- a request or deduplication key, in the same transaction as the message it led to
INSERT INTO msg_memo (kind, at, queue, key, ids) VALUES (?, ?, ?, ?, ?);

-- name: select_entries
SELECT kind, at, queue, key, ids FROM msg_memo WHERE at >= ? ORDER BY position;

-- name: forget_entries
-- the oldest are the first: only a part of them is looked at
DELETE FROM msg_memo WHERE position IN (
  SELECT position FROM (SELECT position, at FROM msg_memo ORDER BY position LIMIT ?) WHERE at < ?
);

-- name: forget_many_entries
DELETE FROM msg_memo WHERE position IN (
  SELECT position FROM msg_memo WHERE position <= (SELECT max(position) FROM msg_memo) - ? ORDER BY position LIMIT ?
);

-- name: select_states
SELECT queue, message_key, name FROM {{msg_index_table}};

-- name: select_archived_names
SELECT group_concat(name, char(10)) FROM {{msg_index_table}} WHERE +queue = ? AND state = 'archived';

-- name: select_unnamed
-- a row of the original, which knows no names
SELECT 1 FROM {{msg_index_table}} WHERE name IS NULL LIMIT 1;

-- name: mark_policies
UPDATE {{kv_table}} SET value_type = 'policy' WHERE key >= 'policy:' AND key < 'policy;' AND value_type <> 'policy';

-- name: rename_state
UPDATE {{msg_index_table}} SET state = ? WHERE state = ? AND name IS NULL;

-- name: name_rows
UPDATE {{msg_index_table}} SET name = original_name(
  queue, state, priority, available_at, lease_until, attempt, message_key,
  (SELECT created_at FROM {{kv_table}} WHERE key = message_key), (SELECT value FROM {{kv_table}} WHERE key = message_key),
  {{later_columns}}
) WHERE name IS NULL;

-- name: select_others
-- waiting messages whose keys do not lie among those of their queue: the original lets keys be anything
SELECT group_concat(name, char(10)) FROM {{msg_index_table}}
WHERE instr(name, '.w') > 0 AND queue = ? AND +state IN ('ready', 'delayed');
