-- name: ping
SELECT 1 AS answer;

-- name: add_room
INSERT INTO rooms (id, name, created_at) VALUES (:id, :name, :created_at);

-- name: add_room_once
INSERT INTO rooms (id, name, created_at) VALUES (:id, :name, :created_at) ON CONFLICT (id) DO NOTHING;

-- name: mark_room
INSERT INTO hall_rooms (room_id, kind) VALUES (:room_id, :kind) ON CONFLICT (room_id) DO NOTHING;

-- name: mark_of_room
SELECT kind FROM hall_rooms WHERE room_id = :room_id;

-- name: marked_rooms
SELECT room_id FROM hall_rooms;

-- name: room
SELECT id, name, last_message_id, last_message_at, created_at FROM rooms WHERE id = :id;

-- name: add_member
-- Returns no row for somebody who is a member already.
INSERT INTO room_members (room_id, user_id, joined_at) VALUES (:room_id, :user_id, :joined_at)
ON CONFLICT (room_id, user_id) DO NOTHING RETURNING joined_at;

-- name: remove_member
DELETE FROM room_members WHERE room_id = :room_id AND user_id = :user_id;

-- name: membership
SELECT joined_at, last_read_message_id FROM room_members WHERE room_id = :room_id AND user_id = :user_id;

-- name: members
SELECT room_members.room_id, room_members.user_id, name, email, coalesce(role, 'member') AS role, joined_at,
    last_read_message_id, banned_at
FROM room_members JOIN users ON users.id = room_members.user_id
    LEFT JOIN hall_profiles ON hall_profiles.user_id = room_members.user_id
    LEFT JOIN hall_accounts ON hall_accounts.user_id = room_members.user_id
WHERE room_members.room_id = :room_id ORDER BY joined_at, room_members.user_id;

-- name: rooms_of
-- The newest activity first. Counting the unread stops at :most.
SELECT rooms.id, rooms.name, rooms.last_message_id, rooms.last_message_at, rooms.created_at, hall_rooms.kind,
    (SELECT count(*) FROM (
        SELECT 1 FROM messages WHERE messages.room_id = rooms.id
            AND messages.id > coalesce(room_members.last_read_message_id, '')
            AND messages.sender_id <> room_members.user_id
        LIMIT :most) AS counted) AS unread
FROM room_members JOIN rooms ON rooms.id = room_members.room_id
    LEFT JOIN hall_rooms ON hall_rooms.room_id = rooms.id
WHERE room_members.user_id = :user_id
ORDER BY coalesce(rooms.last_message_at, rooms.created_at) DESC, rooms.id;

-- name: rooms_with
SELECT room_id FROM room_members WHERE user_id = :user_id;

-- name: mark_read
-- A mark never goes back.
UPDATE room_members SET last_read_message_id = :message_id
WHERE room_id = :room_id AND user_id = :user_id
    AND (last_read_message_id IS NULL OR last_read_message_id < :message_id);

-- name: rooms_without_their_last_message
SELECT rooms.id, last_message_id FROM rooms LEFT JOIN messages ON messages.id = last_message_id
WHERE last_message_id IS NOT NULL AND messages.id IS NULL;

-- name: rooms_behind_their_messages
SELECT id, last_message_id FROM rooms
WHERE EXISTS (SELECT 1 FROM messages WHERE room_id = rooms.id AND messages.id > coalesce(last_message_id, ''));

-- name: rooms
SELECT id, name, created_at, last_message_at,
    (SELECT count(*) FROM room_members WHERE room_id = rooms.id) AS members,
    (SELECT count(*) FROM messages WHERE room_id = rooms.id) AS messages
FROM rooms ORDER BY coalesce(last_message_at, created_at) DESC, id;
