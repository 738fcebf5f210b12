-- name: message_by_id
SELECT messages.id, messages.room_id, rooms.name AS room, sender_id, hall_profiles.name AS sender, client_msg_id, type,
    content, messages.created_at, topic, position, item_id AS removed_by
FROM messages JOIN rooms ON rooms.id = messages.room_id LEFT JOIN hall_profiles ON user_id = sender_id
    LEFT JOIN hall_message_positions ON hall_message_positions.message_id = messages.id
    LEFT JOIN hall_removals ON hall_removals.message_id = messages.id
WHERE messages.id = :id;

-- name: messages_by_client_id
-- Clients choose these ids, and none of ours is sorted by them alone: this reads the whole table.
SELECT id FROM messages WHERE client_msg_id = :id ORDER BY id LIMIT :most;

-- name: newest_messages
SELECT messages.id, room_id, sender_id, name AS sender_name, client_msg_id, type, content, created_at,
    told.message_id AS removes, removed.item_id AS removed_by, about
FROM messages LEFT JOIN hall_profiles ON user_id = sender_id LEFT JOIN hall_about ON hall_about.message_id = messages.id
    LEFT JOIN hall_removals AS told ON told.item_id = messages.id
    LEFT JOIN hall_removals AS removed ON removed.message_id = messages.id
WHERE room_id = :room_id ORDER BY messages.id DESC LIMIT :most;

-- name: messages_before
SELECT messages.id, room_id, sender_id, name AS sender_name, client_msg_id, type, content, created_at,
    told.message_id AS removes, removed.item_id AS removed_by, about
FROM messages LEFT JOIN hall_profiles ON user_id = sender_id LEFT JOIN hall_about ON hall_about.message_id = messages.id
    LEFT JOIN hall_removals AS told ON told.item_id = messages.id
    LEFT JOIN hall_removals AS removed ON removed.message_id = messages.id
WHERE room_id = :room_id AND messages.id < :before AND messages.id > :after ORDER BY messages.id DESC LIMIT :most;

-- name: messages_after
SELECT messages.id, room_id, sender_id, name AS sender_name, client_msg_id, type, content, created_at,
    told.message_id AS removes, removed.item_id AS removed_by, about
FROM messages LEFT JOIN hall_profiles ON user_id = sender_id LEFT JOIN hall_about ON hall_about.message_id = messages.id
    LEFT JOIN hall_removals AS told ON told.item_id = messages.id
    LEFT JOIN hall_removals AS removed ON removed.message_id = messages.id
WHERE room_id = :room_id AND messages.id > :after ORDER BY messages.id LIMIT :most;
