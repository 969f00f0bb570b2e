"""``python -m hetsched SCRIPT``: see `hetsched.functions.script`."""

from __future__ import annotations

import sys

from hetsched.functions.script import main

sys.exit(main())
