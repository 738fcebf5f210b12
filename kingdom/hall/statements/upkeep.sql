-- name: store_as_told
-- A message under the id that it was told with; no row when it is there already.
INSERT INTO messages (id, room_id, sender_id, client_msg_id, type, content, created_at)
VALUES (:id, :room_id, :sender_id, :client_msg_id, :type, :content, :created_at)
ON CONFLICT DO NOTHING RETURNING id;

-- name: note_last_message
UPDATE rooms SET last_message_id = :id, last_message_at = :created_at
WHERE id = :room_id AND (last_message_id IS NULL OR last_message_id < :id);
