"""The webhook configurations, their CEL conditions and the RBAC rules, generated from registry and policy."""
