import os
import sys

import pytest

from bench.errors import BenchError
from bench.fresh_call import in_fresh_process


def test_the_result_comes_back_from_another_process(tmp_path):
    assert in_fresh_process(divmod, 17, 5, log=tmp_path / "log") == (3, 2)
    assert in_fresh_process(os.getpid, log=tmp_path / "log") != os.getpid()


def test_a_process_that_fails_is_quoted(tmp_path):
    with pytest.raises(BenchError, match=r"divmod must give a result, got exit code 1\. .*: ZeroDivisionError"):
        in_fresh_process(divmod, 1, 0, log=tmp_path / "log")
    with pytest.raises(BenchError, match="got exit code 3"):
        in_fresh_process(sys.exit, 3, log=tmp_path / "log")
