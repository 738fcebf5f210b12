"""The sentinel: watches sources outside and turns what happens there into events, once each."""
