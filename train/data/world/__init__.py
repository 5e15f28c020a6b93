"""The embedded world: scenes of glyphs in many styles, real handwriting, and questions about both."""
