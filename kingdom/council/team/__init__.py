"""The council's team without a model: each agent follows rules, and what it delivers is computed from the repository.

An agent is a program that is told of messages. It sends what follows from each, remembers what it has done, and deletes
the message. Told twice it does nothing the second time: what it sends has names and ids made of what it answers.
"""

AGENTS = {
    "leader": "kingdom.council.team.leader:ANSWERS",
    "strategist": "kingdom.council.team.strategist:ANSWERS",
    "architect": "kingdom.council.team.architect:ANSWERS",
    "evaluator": "kingdom.council.team.evaluator:ANSWERS",
    "coordinator": "kingdom.council.team.coordinator:ANSWERS",
    "innovator": "kingdom.council.team.innovator:ANSWERS",
    "ignitian": "kingdom.council.team.ignitian:ANSWERS",
}
"""By agent: what it does with each type of message."""
