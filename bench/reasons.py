"""Why a figure of the queue is short of its goal, by the row's name, for rows that do not tell it themselves."""

NOISE = "within the noise of this disk: other runs met it"
SHARED = "manager, clients and kernel share two cores"
ECHO = "the echo alone took 0.10 to 0.22 ms in this run; ours adds six directory operations and a commit"

WHY = {
    "filesystem publish, batches of 100": "each message stays a file of its own; 0.17 to 0.58 over runs",
    "sqlite take+ack": "bodies and index are two tables, the floor writes one; 0.66 to 1.10 over runs",
    "sqlite publish, batches of 100": "two tables and an index alone: 65,000 to 100,000 a second; the floor has one",
    "sqlite publish, alone": NOISE,
    "hybrid publish": "envelope, validation and index in Python beside a file and a row; 0.81 to 1.09 over runs",
    "hybrid take+ack": "as its publish; 0.72 to 1.05 over runs",
    "hybrid publish of 100 kB": NOISE,
    "filesystem ack with 1,000,000 waiting": NOISE,
    "filesystem restart with 1,000,000 waiting": "half of it is the listing, the rest reads names in Python",
    "sqlite publish with 1,000,000 waiting": "not explained: the index is deeper; one run",
    "mailbox publish p50, filesystem": "power: the message and its folder are two syncs in a row, the goal has one",
    "mailbox publish p50, sqlite": ECHO,
    "mailbox consume p50, sqlite": ECHO,
    "mailbox ack p50, sqlite": ECHO,
    "mailbox publish p50, hybrid": f"{ECHO}; power: payload, folder and row are three syncs in a row",
    "mailbox publish p99, hybrid": "payload, folder and row are three syncs in a row",
    "mailbox consume p50, hybrid": ECHO,
    "mailbox ack p50, hybrid": ECHO,
    "mailbox 4 clients against one client, filesystem": SHARED,
    "mailbox 4 clients against one client, sqlite": SHARED,
    "mailbox 4 clients against one client, hybrid": SHARED,
    "mailbox batches of 100 against one client, hybrid": "each message has a payload file of its own",
}
