"""Yi-Rang MQ as a library: `from kingdom.mq import Client` to talk to the manager, `open_engine` to be one.

Inside: `engine` has the verbs; `queues` and their `queue_state` hold the order, `leases` who has what, `timers` what
is due when, `failures` what becomes of a message that was not acknowledged, `dead_letters` what can be done about those
that failed for good, `deduplication` which request led to which message, `stores` where all of it lies. `names` knows
the grammar of a message's name, `message_format` that of its body; `calls` spells the calls as JSON.
"""

from typing import Any

from kingdom.runtime.tables import load

_ATTRIBUTES = {
    "Client": "kingdom.mq.client:Client",
    "Draft": "kingdom.mq.message_format:Draft",
    "Engine": "kingdom.mq.engine:Engine",
    "EngineSettings": "kingdom.mq.queues:EngineSettings",
    "StoreConfig": "kingdom.mq.stores.base:StoreConfig",
    "Policy": "kingdom.mq.policy:Policy",
    "open_engine": "kingdom.mq.engine:open_engine",
}


def __getattr__(name: str) -> Any:
    if name not in _ATTRIBUTES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(_ATTRIBUTES[name])
