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

-- name: store_message@sqlite
-- As add_message, and with it what belongs to a new message: see `each`.
INSERT INTO messages (id, room_id, sender_id, client_msg_id, type, content, created_at)
VALUES (:id, :room_id, :sender_id, :client_msg_id, :type, :content, :created_at)
ON CONFLICT (room_id, sender_id, client_msg_id) DO NOTHING RETURNING id;
INSERT INTO hall_message_positions (message_id, topic, position) VALUES (:id, :topic, :position);
UPDATE rooms SET last_message_id = :id, last_message_at = :created_at WHERE id = :room_id;

-- name: store_message@postgresql
-- The same in one statement: every one of its own would be one more way to the server and back.
WITH added AS (
    INSERT INTO messages (id, room_id, sender_id, client_msg_id, type, content, created_at)
    VALUES (:id, :room_id, :sender_id, :client_msg_id, :type, :content, :created_at)
    ON CONFLICT (room_id, sender_id, client_msg_id) DO NOTHING RETURNING id, room_id, created_at
), noted AS (
    INSERT INTO hall_message_positions (message_id, topic, position) SELECT id, :topic, :position FROM added
), told AS (
    UPDATE rooms SET last_message_id = added.id, last_message_at = added.created_at FROM added WHERE rooms.id = added.room_id
)
SELECT id FROM added;

-- name: note_about
INSERT INTO hall_about (message_id, about) VALUES (:message_id, :about) ON CONFLICT (message_id) DO NOTHING;

-- name: message_of_client
-- An imported message has no position.
SELECT messages.id, type, content, created_at, topic, position
FROM messages LEFT JOIN hall_message_positions ON message_id = messages.id
WHERE room_id = :room_id AND sender_id = :sender_id AND client_msg_id = :client_msg_id;
