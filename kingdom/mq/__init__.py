"""Yi-Rang MQ as a library: `kingdom.mq.open("data")` is a store in this process, `kingdom.mq.connect()` a manager's.

Both are a `Session`. `Client` is the mailbox call by call; `open_engine` is for those who want to be a manager.

Inside: `engine` has the verbs; `queues` and their `queue_state` hold the order, `leases` who has what, `timers` what
is due when, `failures` what becomes of a message that was not acknowledged, `dead_letters` what can be done about those
that failed for good, `deduplication` which request led to which message, `stores` where all of it lies. `names` knows
the grammar of a message's name, `message_format` that of its body; `calls` spells the calls as JSON.
"""

from typing import TYPE_CHECKING, Any

from kingdom.base.tables import load

if TYPE_CHECKING:
    from kingdom.mq.client import Client as Client
    from kingdom.mq.engine import Engine as Engine
    from kingdom.mq.engine import open_engine as open_engine
    from kingdom.mq.message_format import Draft as Draft
    from kingdom.mq.policy import Policy as Policy
    from kingdom.mq.queues import EngineSettings as EngineSettings
    from kingdom.mq.session import Session as Session
    from kingdom.mq.session import connect as connect
    from kingdom.mq.session import open as open
    from kingdom.mq.stores.base import StoreConfig as StoreConfig
    from kingdom.mq.typed_calls import Delivery as Delivery
    from kingdom.mq.typed_calls import Refused as Refused

_ATTRIBUTES = {
    "Client": "kingdom.mq.client:Client",
    "Delivery": "kingdom.mq.typed_calls:Delivery",
    "Draft": "kingdom.mq.message_format:Draft",
    "Engine": "kingdom.mq.engine:Engine",
    "EngineSettings": "kingdom.mq.queues:EngineSettings",
    "Refused": "kingdom.mq.typed_calls:Refused",
    "Session": "kingdom.mq.session:Session",
    "connect": "kingdom.mq.session:connect",
    "open": "kingdom.mq.session:open",
    "StoreConfig": "kingdom.mq.stores.base:StoreConfig",
    "Policy": "kingdom.mq.policy:Policy",
    "open_engine": "kingdom.mq.engine:open_engine",
}


def __getattr__(name: str) -> Any:
    if name not in _ATTRIBUTES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(_ATTRIBUTES[name])
