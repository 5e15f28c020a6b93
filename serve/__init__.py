"""The gateway: every client's own model behind one OpenAI-compatible address, answered by vLLM."""
