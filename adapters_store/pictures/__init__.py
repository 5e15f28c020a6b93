"""From a picture's file to the numbers an encoder takes: one way for training and serving."""
