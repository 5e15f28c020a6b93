"""What the prompt family costs and what it reaches: the parts of ``python bench/prompts.py``."""
