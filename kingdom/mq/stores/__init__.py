"""Where messages lie. One more store is one module and one line here; the contract suite picks it up."""

STORES = {
    "memory": "kingdom.mq.stores.memory:MemoryStore",
    "filesystem": "kingdom.mq.stores.files:FileStore",
    "sqlite": "kingdom.mq.stores.sqlite:SqliteStore",
    "hybrid": "kingdom.mq.stores.hybrid:HybridStore",
}
