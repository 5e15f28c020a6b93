"""A version on disk: its manifest, its report, its files, and whether they are what they say."""
