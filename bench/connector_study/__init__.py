"""What personal connectors cost: in batches by themselves, and in answers through the gateway."""
