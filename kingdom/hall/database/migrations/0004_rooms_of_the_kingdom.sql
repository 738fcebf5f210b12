-- The rooms that the kingdom has opened, which people join by invitation alone.
CREATE TABLE hall_rooms (
    room_id uuid PRIMARY KEY REFERENCES rooms (id),
    kind varchar(16) NOT NULL
);

-- The room that an invitation leads into, besides the hall.
ALTER TABLE hall_invites ADD COLUMN room_id uuid REFERENCES rooms (id);
