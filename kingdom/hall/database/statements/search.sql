-- name: floor_of_room
-- The oldest message that a search reads at once; no row when it reads all. It counts :skipped newer ones.
SELECT id FROM messages WHERE room_id = :room_id AND id < :before ORDER BY id DESC LIMIT 1 OFFSET :skipped;

-- name: floor_of_all
SELECT id FROM messages WHERE id < :before ORDER BY id DESC LIMIT 1 OFFSET :skipped;

-- name: search_room
SELECT messages.id, room_id, sender_id, name AS sender_name, client_msg_id, type, content, created_at,
    message_id AS removes, NULL AS removed_by, NULL AS about
FROM messages LEFT JOIN hall_profiles ON user_id = sender_id LEFT JOIN hall_removals ON item_id = messages.id
WHERE room_id = :room_id AND messages.id < :before AND messages.id >= :floor
    AND (content ILIKE :composed ESCAPE '\' OR content ILIKE :decomposed ESCAPE '\')
ORDER BY messages.id DESC LIMIT :most;

-- name: search_all
SELECT messages.id, messages.room_id, sender_id, name AS sender_name, client_msg_id, type, content, created_at,
    message_id AS removes, NULL AS removed_by, NULL AS about
FROM messages JOIN room_members ON room_members.room_id = messages.room_id AND room_members.user_id = :user_id
    LEFT JOIN hall_profiles ON hall_profiles.user_id = sender_id LEFT JOIN hall_removals ON item_id = messages.id
WHERE messages.id < :before AND messages.id >= :floor
    AND (content ILIKE :composed ESCAPE '\' OR content ILIKE :decomposed ESCAPE '\')
ORDER BY messages.id DESC LIMIT :most;
