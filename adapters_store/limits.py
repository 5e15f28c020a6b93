"""How large what the store reads may be. Nothing larger is read, and nothing larger is written.

Each limit stands well above what is trained: a LoRA on every linear of an 80-layer language model has 1,120 tensors and
560 target modules; ImageNet-21k has 21,843 classes.
"""

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# Of files, in bytes.
MANIFEST_BYTES = 4 * MIB
REPORT_BYTES = 256 * KIB
POINTER_BYTES = MIB
CONFIG_BYTES = MIB  # adapter_config.json
KEYS_BYTES = 4 * MIB
WRITER_BYTES = KIB  # a mirror's writer.json, a store's .mirror_id
HEADER_BYTES = 16 * MIB  # of a safetensors file: the names, formats and shapes of its tensors
VERSION_BYTES = 4 * GIB  # all files of a version; one is verified in memory

# Of JSON.
JSON_DEPTH = 32
INTEGER = 2**63  # no integer as large or larger: what reads them next may have 64 bits

# Counts.
ENTRIES = 100_000  # names in one folder, here or on a mirror
FILES = 64  # of a version
TENSORS = 65_536  # of a file
PREVIOUS = 10_000  # rollback targets of a pointer
CLASS_NAMES = 32_768
TARGET_MODULES = 65_536
STATEMENTS = 100  # of one side of a manifest's trust

# Texts, in characters.
TENSOR_NAME_CHARS = 512
CLASS_NAME_CHARS = 512
TEMPLATE_CHARS = 65_536
MODULE_CHARS = 256
PATTERN_CHARS = 1024
NAME_CHARS = 1024  # a method, a base, a statement

# Numbers.
RANK = 8192
ALPHA = 1e6
IMAGE_SIDE = 2048  # pixels
MEAN = 1000.0  # magnitude; pixels are in [0, 1]
STD = (1e-4, 1000.0)  # 1/255, of encoders that want pixels in [0, 255], is allowed
