-- name: newest_messages
SELECT messages.id, room_id, sender_id, name AS sender_name, client_msg_id, type, content, created_at
FROM messages LEFT JOIN hall_profiles ON user_id = sender_id
WHERE room_id = :room_id ORDER BY messages.id DESC LIMIT :most;

-- name: messages_before
SELECT messages.id, room_id, sender_id, name AS sender_name, client_msg_id, type, content, created_at
FROM messages LEFT JOIN hall_profiles ON user_id = sender_id
WHERE room_id = :room_id AND messages.id < :before AND messages.id > :after ORDER BY messages.id DESC LIMIT :most;

-- name: messages_after
SELECT messages.id, room_id, sender_id, name AS sender_name, client_msg_id, type, content, created_at
FROM messages LEFT JOIN hall_profiles ON user_id = sender_id
WHERE room_id = :room_id AND messages.id > :after ORDER BY messages.id LIMIT :most;
