"""Pictures of requests: checked, decoded in turn, computed together."""
