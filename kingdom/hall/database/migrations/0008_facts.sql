-- What is known of the database as a whole, by name.
CREATE TABLE hall_facts (
    name varchar(32) PRIMARY KEY,
    value text NOT NULL
);
