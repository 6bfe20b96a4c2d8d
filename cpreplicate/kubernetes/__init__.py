"""Kubernetes: what a service keeps in a namespace. Only this folder imports the official client."""

from cpreplicate.kubernetes.namespace import Namespace, connect

__all__ = ["Namespace", "connect"]
