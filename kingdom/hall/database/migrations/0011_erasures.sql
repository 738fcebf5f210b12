-- Removed messages whose text may still be in the topics or in the database's files.
CREATE TABLE hall_erasures (
    id varchar(36) PRIMARY KEY,
    room_id uuid NOT NULL,
    sender_id uuid NOT NULL,
    client_msg_id uuid NOT NULL
);

INSERT INTO hall_erasures (id, room_id, sender_id, client_msg_id)
SELECT messages.id, room_id, sender_id, client_msg_id FROM messages JOIN hall_removals ON message_id = messages.id;
