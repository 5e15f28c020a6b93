"""What training and serving share: versioned adapters on disk, their manifests, and the modules they need to run."""

from adapters_store import torchvision_ops

torchvision_ops.install()
