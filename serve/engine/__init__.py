"""The vLLM process: how it is started, asked, watched, tried and ended."""
