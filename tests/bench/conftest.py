"""Lets tests import ``planted``, the module beside them that builds runs with planted numbers."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
