"""Yi-Rang MQ as a library: `from kingdom.mq import Client` to talk to the manager, `open_engine` to be one.

Inside: `engine` has the verbs; `queues` and their `lines` hold the order, `leases` who has what, `timers` what is due
when, `fates` what becomes of failures, `dead_letters` what can be done about them, `memos` which request led to which
message, `stores` where all of it lies. `wire` spells the calls as JSON.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Client": "kingdom.mq.client",
    "Draft": "kingdom.mq.message_format",
    "Engine": "kingdom.mq.engine",
    "EngineSettings": "kingdom.mq.queues",
    "Plan": "kingdom.mq.stores.base",
    "Policy": "kingdom.mq.policy",
    "open_engine": "kingdom.mq.engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
