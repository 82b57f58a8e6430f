"""Kubernetes: what its nodes and pods say, the manifests of a check, and the label of a node."""
