"""Each partitioner with one comparison turned round fails its tests; and the runner itself."""

import subprocess
import sys
from pathlib import Path

RUNNER = Path(__file__).parent / "runner.py"

TOY = "def larger(a, b):\n    return a if a > b else b\n"
TOY_TEST = "from toy_package import larger\n\n\ndef test_it():\n    assert larger(1, 2) == 2\n"
TOY_LIST = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from mutations.runner import Mutation, complaints
here = Path({here!r})
tests = (str(here / "test_toy.py"),)
rows = [("a > b", "a < b"), ("a if", "  a if"), ("a >= b", "a <= b"), ("larger(a", "smaller(a")]
mutations = [Mutation("__init__.py", *row, tests) for row in rows]
print("\\n".join(complaints(mutations, here / "toy_package")))
"""


def test_every_mutation_of_a_partitioner_is_detected() -> None:
    done = subprocess.run(
        [sys.executable, str(RUNNER), "partition"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("mutations are found out\n")


def test_survivors_and_lines_that_are_gone_are_told(tmp_path: Path) -> None:
    (tmp_path / "toy_package").mkdir()
    (tmp_path / "toy_package" / "__init__.py").write_text(TOY)
    (tmp_path / "test_toy.py").write_text(TOY_TEST)
    script = TOY_LIST.format(tests=str(RUNNER.parent.parent), here=str(tmp_path))

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    found = done.stdout.splitlines()
    assert len(found) == 3, done.stdout + done.stderr
    assert "survived" in found[0]
    assert "there 0 times" in found[1]
    assert "could not be run, exit code 2" in found[2]
