"""``python -m train.publish FOLDER --client ID``."""

import sys

from train.publish.folder import main

sys.exit(main())
