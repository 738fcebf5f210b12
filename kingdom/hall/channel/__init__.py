"""The envoy's channel to the hall."""
