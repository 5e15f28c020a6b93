"""A picture's classes by a client's prompt, gate, memory or vision tower."""
