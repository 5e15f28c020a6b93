"""Parts of `train/pretrain.py`: how the embedded CLIP and LLaVA are made."""
