-- What a message of the kingdom is about, as data: its task, what it says of that, the answers that a question offers.
CREATE TABLE hall_about (
    message_id varchar(26) PRIMARY KEY REFERENCES messages (id),
    about text NOT NULL
);
