-- The tables and indexes as they were first laid out. idx_kv_type leaves messages out and idx_msg_ready stands
-- in the order of delivery, so that a publish touches as few pages as it can.

CREATE TABLE IF NOT EXISTS {{kv_table}} (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  value_type TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  expires_at INTEGER
);

CREATE INDEX IF NOT EXISTS idx_kv_type ON {{kv_table}}(value_type) WHERE value_type <> 'message';
CREATE INDEX IF NOT EXISTS idx_kv_expires ON {{kv_table}}(expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS {{msg_index_table}} (
  queue TEXT NOT NULL,
  state TEXT NOT NULL,
  priority INTEGER NOT NULL DEFAULT 0,
  available_at INTEGER NOT NULL,
  lease_until INTEGER,
  attempt INTEGER NOT NULL DEFAULT 0,
  message_key TEXT NOT NULL REFERENCES {{kv_table}}(key) ON DELETE CASCADE,
  PRIMARY KEY (message_key)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS idx_msg_ready ON {{msg_index_table}}(queue, state, priority DESC, available_at);
CREATE INDEX IF NOT EXISTS idx_msg_lease ON {{msg_index_table}}(state, lease_until) WHERE state = 'inflight';
CREATE INDEX IF NOT EXISTS idx_msg_delayed ON {{msg_index_table}}(state, available_at) WHERE state = 'delayed';
CREATE INDEX IF NOT EXISTS idx_msg_dlq ON {{msg_index_table}}(queue, state) WHERE state = 'dlq';
