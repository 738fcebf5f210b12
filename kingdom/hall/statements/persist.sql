-- name: lock_room@sqlite
SELECT last_message_id FROM rooms WHERE id = :room_id;

-- name: lock_room@postgresql
-- Whoever else stores messages of this room waits until we have.
SELECT last_message_id FROM rooms WHERE id = :room_id FOR UPDATE;

-- name: add_message
-- Returns no row when this sender's message is there already.
INSERT INTO messages (id, room_id, sender_id, client_msg_id, type, content, created_at)
VALUES (:id, :room_id, :sender_id, :client_msg_id, :type, :content, :created_at)
ON CONFLICT (room_id, sender_id, client_msg_id) DO NOTHING RETURNING id;

-- name: note_position
INSERT INTO hall_message_positions (message_id, topic, position) VALUES (:message_id, :topic, :position)
RETURNING message_id;

-- name: message_of_client
-- An imported message has no position.
SELECT messages.id, type, content, created_at, topic, position
FROM messages LEFT JOIN hall_message_positions ON message_id = messages.id
WHERE room_id = :room_id AND sender_id = :sender_id AND client_msg_id = :client_msg_id;

-- name: note_last_message
UPDATE rooms SET last_message_id = :message_id, last_message_at = :at WHERE id = :room_id RETURNING id;
