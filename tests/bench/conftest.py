"""Lets tests import ``planted``, the module beside them, and those above them, such as ``fake_nvml``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))
