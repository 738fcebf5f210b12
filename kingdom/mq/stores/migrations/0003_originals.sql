-- Names are given by kingdom/mq/stores/original_rows.py now: also to those rows of the original that an earlier version named
-- amiss (ids of another form than ours). The index finds rows without a name, and those whose key is of another form.

UPDATE {{msg_index_table}} SET name = NULL WHERE name IS NOT NULL AND (
  substr(name, -22, 1) NOT IN ('7', '8')
  OR message_key <> 'msg:' || queue || ':' || substr(name, -36)
);

CREATE INDEX idx_msg_unnamed ON {{msg_index_table}}(message_key) WHERE name IS NULL;
CREATE INDEX idx_msg_others ON {{msg_index_table}}(queue) WHERE instr(name, '.w') > 0;
