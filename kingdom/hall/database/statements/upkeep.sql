-- name: store_under_its_id
-- A message under the id that it was told with; no row when it is there already.
INSERT INTO messages (id, room_id, sender_id, client_msg_id, type, content, created_at)
VALUES (:id, :room_id, :sender_id, :client_msg_id, :type, :content, :created_at)
ON CONFLICT DO NOTHING RETURNING id;

-- name: note_last_message
UPDATE rooms SET last_message_id = :id, last_message_at = :created_at
WHERE id = :room_id AND (last_message_id IS NULL OR last_message_id < :id);

-- name: keep_room
INSERT INTO hall_retention (room_id, days) VALUES (:room_id, :days) ON CONFLICT (room_id) DO UPDATE SET days = excluded.days;

-- name: retention_days
SELECT DISTINCT days FROM hall_retention;

-- name: room_to_cut
-- A room that keeps its messages so many days and has older ones. Its newest message always stays.
SELECT rooms.id, last_message_id FROM rooms LEFT JOIN hall_retention ON hall_retention.room_id = rooms.id
WHERE coalesce(days, :usual) = :days AND EXISTS (
    SELECT 1 FROM messages WHERE messages.room_id = rooms.id AND messages.id < :cut AND messages.id < last_message_id)
LIMIT 1;

-- name: last_to_cut
SELECT max(id) AS id FROM (
    SELECT id FROM messages WHERE room_id = :room_id AND id < :cut AND id < :last ORDER BY id LIMIT :most) AS oldest;

-- name: cut_removals
DELETE FROM hall_removals WHERE message_id IN (SELECT id FROM messages WHERE room_id = :room_id AND id <= :upto)
    OR item_id IN (SELECT id FROM messages WHERE room_id = :room_id AND id <= :upto);

-- name: cut_positions
DELETE FROM hall_message_positions WHERE message_id IN (SELECT id FROM messages WHERE room_id = :room_id AND id <= :upto);

-- name: cut_about
DELETE FROM hall_about WHERE message_id IN (SELECT id FROM messages WHERE room_id = :room_id AND id <= :upto);

-- name: cut_messages
DELETE FROM messages WHERE room_id = :room_id AND id <= :upto;

-- name: note_cut
INSERT INTO hall_cuts (room_id, message_id) VALUES (:room_id, :message_id)
ON CONFLICT (room_id) DO UPDATE SET message_id = excluded.message_id;

-- name: cut_of_room
SELECT message_id FROM hall_cuts WHERE room_id = :room_id;
