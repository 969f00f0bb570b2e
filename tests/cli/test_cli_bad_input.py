"""Users' mistakes: an error of one line, the exit code, and nothing left behind."""

from __future__ import annotations

import ctypes
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from descriptors import open_descriptors

from hetsched.config import shipped_folder

from .conftest import Call

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
PR_CAPBSET_DROP = 24


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def says(shape: str, descr: str = "<c8") -> bytes:
    return header(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n")


def soon(condition: Callable[[], bool]) -> bool:
    """Whether it comes true: what has ended may be in /proc for another moment."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        os.sched_yield()
    return condition()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the current one, full of what isn't an input; and of a good one."""
    good = np.ones((4, 16, 16), "complex64")
    np.save("good.npy", good)
    np.save("flat.npy", good.ravel())
    np.save("objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    np.save("records.npy", np.zeros(3, dtype=[("a", "<f4"), ("b", "<i4")]))
    np.save("text.npy", np.array(["a", "b"]))
    whole = Path("good.npy").read_bytes()
    Path("short.npy").write_bytes(whole[:-1])
    Path("long.npy").write_bytes(whole + b"\x00")
    Path("empty.npy").touch()
    Path("pickle.npy").write_bytes(b"\x80\x04N.")
    Path("lies.npy").write_bytes(says("(1000000000000, 512, 512)") + bytes(64))
    Path("negative.npy").write_bytes(says("(-4, 16, 16)") + bytes(64))
    Path("expression.npy").write_bytes(header("__import__('os').system('touch gone')\n"))
    Path("folder").mkdir()
    os.mkfifo("fifo")
    Path("dangling.npy").symlink_to("nowhere.npy")
    Path("there.npy").write_text("mine")
    Path("config.txt.toml").write_text("this is = not [TOML")
    Path("many.toml").write_text("[[device]]\nkind = 'cpu'\ncount = 100000\n")
    Path("key.toml").write_text("[[device]]\nkind = 'cpu'\ncolour = 1\n")
    Path("value.toml").write_text("memory_limit = 'much'\n")
    Path("endless.toml").write_text("memory_limit = '1e999'\n")
    Path("broken.py").write_text("this is = not Python\n")
    monkeypatch.syspath_prepend(Path.cwd())
    return Path.cwd()


@pytest.fixture
def clean(files: Path) -> Iterator[None]:
    """Fails when a file, descriptor or process is left behind."""
    me = psutil.Process()
    before = sorted(os.listdir()), open_descriptors(), me.num_threads()
    contents = Path("there.npy").read_text()
    yield
    assert soon(lambda: me.children() == [])
    assert sorted(os.listdir()) == before[0]
    assert soon(lambda: open_descriptors() <= before[1])
    assert soon(lambda: me.num_threads() <= before[2])
    assert Path("there.npy").read_text() == contents


USAGE = [
    (("--batch", "256x512"), "got 2 numbers"),
    (("--batch", "0x512x512"), "at least 1"),
    (("--batch", "-1x512x512"), "'-1' is not a number"),
    (("--batch", "256x51Ox512"), "did you mean 510?"),
    (("--batch", ""), "256x512x512"),
    (("--batch", "²x512x512"), "'²' is not a number"),
    (("--batch", "٣x512x512"), "is not a number"),
    (("--batch", "1x2x3x4"), "got 4 numbers"),
    (("--batch", "9" * 5000 + "x2x2"), "characters"),
    (("--batch",), "--batch"),
    ((), "batch"),
    (("--batch", "4x16x16", "--dtype", "complex46"), "complex64"),
    (("--batch", "4x16x16", "--direction", "foward"), "forward"),
    (("--bach", "4x16x16"), "did you mean --batch?"),
    (("--batch", "4x16x16", "surplus"), "surplus"),
    (("--batch", "4x16x16", "--memory-limit", "much"), "--memory-limit"),
    (("--batch", "4x16x16", "--memory-limit", "0"), "at least 1 byte"),
    (("--batch", "4x16x16", "--seed", "x"), "--seed"),
    (("--batch", "4x16x16", "--seed", "-1"), "--seed"),
    (("--batch", "4x16x16", "--priority", "99"), "--priority"),
    (("--batch", "4x16x16", "--devices", "cpu,,gpu0"), "commas"),
    (("--input", ""), "--input"),
    (("--input", "x="), "--input"),
    (("--input", "a.npy", "--input", "b.npy"), "two files"),
    (("--batch", "4x16x16", "--devices", "cqu"), "did you mean cpu"),
]


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("verb", ["run", "submit"])
@pytest.mark.parametrize(("flags", "word"), USAGE[:-1])
def test_errors_detected_at_once_need_no_daemon(
    call: Call, verb: str, flags: tuple[str, ...], word: str
) -> None:
    ended = call(verb, "fft", *flags)

    assert (ended.code, ended.out) == (2, "")
    assert word in ended.error
    assert len(ended.err.splitlines()) == 1


ENGINE = [
    (*USAGE[-1], 2),
    (("--batch", "1000000000000x512x512"), "the largest load that fits is", 65),
    (("--batch", "4x16x16", "--devices", "gpu0"), "gpu0 is not available", 69),
    (("--input", "none.npy"), "no such file", 66),
    (("--input", "dangling.npy"), "nowhere.npy", 66),
    (("--input", "short.npy"), "truncated", 65),
    (("--input", "long.npy"), "more than its header says", 65),
    (("--input", "empty.npy"), "is empty", 65),
    (("--input", "pickle.npy"), "a pickle", 65),
    (("--input", "objects.npy"), "pickled", 65),
    (("--input", "records.npy"), "records", 65),
    (("--input", "text.npy"), "only numbers", 65),
    (("--input", "flat.npy"), "three axes", 65),
    (("--input", "lies.npy"), "its header says", 65),
    (("--input", "negative.npy"), "negative", 65),
    (("--input", "expression.npy"), "broken .npy header", 65),
    (("--input", "folder"), "a directory", 65),
    (("--input", "fifo"), "a FIFO", 65),
    (("--input", "/dev/null"), "a device", 65),
    (("--input", "good.npy", "--batch", "5x16x16"), "4x16x16", 65),
    (("--input", "z=good.npy", "--batch", "4x16x16"), "z", 2),
    (("--input", "good.npy", "--output", "there.npy"), "exists", 73),
    (("--input", "good.npy", "--output", "good.npy", "--force"), "is also the input", 65),
    (("--input", "good.npy", "--output", "folder"), "is a directory", 73),
    (("--input", "good.npy", "--output", "none/y.npy"), "there is no folder", 73),
    (("--input", "good.npy", "--output", "there.npy/y.npy"), "there is no folder", 73),
    (("--batch", "4x16x16", "--output", "z=y.npy"), "no output 'z'", 2),
    (("--batch", "1000000x512x512", "--input", "good.npy", "--output", "y.npy"), "4x16x16", 65),
]


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(("flags", "word", "code"), ENGINE)
def test_errors_of_files_and_machine(
    call: Call, flags: tuple[str, ...], word: str, code: int
) -> None:
    ended = call("run", "fft", *flags, "--config", "cpu-only")

    assert (ended.code, ended.out) == (code, "")
    assert word in ended.error
    assert len(ended.err.splitlines()) == 1


OTHERS = [
    (("run", "ftf", "--batch", "4x16x16"), 2, "did you mean 'fft'?"),
    (("run",), 2, "fft"),
    (("run", "no.such:Thing"), 2, "no.such"),
    (("run", "hetsched.units:parse_size"), 2, "hetsched.units"),
    (("run", ":x"), 2, "':x' can't be loaded"),
    (("run", ".a:b"), 2, "'.a:b' can't be loaded"),
    (("run", "hetsched.workload:Workload"), 2, "abstract"),
    (("run", "broken:Load"), 2, "SyntaxError"),
    (
        ("run", "matrix_update", "--rows", "ten", "--cols", "4", "--inner", "2"),
        2,
        "rows: 'ten' is not a whole number",
    ),
    (("run", "fft", "--batch", "4x16x16", "--memory-limit", "1e400"), 2, "--memory-limit"),
    (("submit", "fft", "--batch", "4x16x16", "--memory-limit", "1e18T"), 2, "--memory-limit"),
    (("show", "9" * 23), 2, "ID"),
    (("cancel", "9" * 23), 2, "ID"),
    (("wait", "1", "--timeout", "1e400"), 2, "--timeout"),
    (("config", "check", "endless.toml"), 78, "memory_limit"),
    (("stauts",), 2, "did you mean 'status'?"),
    (("--bogus",), 2, "--bogus"),
    (("status", "--jsno"), 2, "did you mean --json?"),
    (("wait",), 2, "ID"),
    (("wait", "first"), 2, "first"),
    (("wait", "1", "--timeout", "soon"), 2, "--timeout"),
    (("status",), 69, "no daemon"),
    (("ping",), 69, "no daemon"),
    (("show", "1"), 69, "hetsched serve"),
    (("wait", "1"), 69, "no daemon"),
    (("cancel", "1"), 69, "no daemon"),
    (("result", "1", "-o", "y.npy"), 69, "no daemon"),
    (("submit", "fft", "--batch", "4x16x16"), 69, "no daemon"),
    (("run", "fft", "--batch", "4x16x16", "--config", "nope"), 66, "cpu-only"),
    (("run", "fft", "--batch", "4x16x16", "--config", "none.toml"), 66, "none.toml"),
    (("devices", "--config", "config.txt.toml"), 78, "not valid TOML"),
    (("devices", "--config", "key.toml"), 78, "colour"),
    (("devices", "--config", "value.toml"), 78, "memory_limit"),
    (("config", "check", "key.toml"), 78, "device[0]"),
    (("config", "check", "folder/"), 66, "folder"),
    (("config", "check", "many.toml"), 78, "device[0].count: 100000 cores"),
    (("serve", "--config", "key.toml"), 78, "colour"),
]


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(("words", "code", "word"), OTHERS)
def test_other_commands_report_errors_alike(
    call: Call, words: tuple[str, ...], code: int, word: str
) -> None:
    ended = call(*words)

    assert (ended.code, ended.out) == (code, "")
    assert word in ended.error
    assert len(ended.err.splitlines()) == 1


@pytest.mark.usefixtures("clean")
def test_a_runtime_path_too_long_for_a_socket(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(tmp_path / ("r" * 120)))

    found = [call(verb) for verb in ("serve", "status")]

    assert [ended.code for ended in found] == [78, 78]
    assert all("107" in ended.error for ended in found)


@pytest.mark.usefixtures("clean")
def test_a_state_folder_that_cannot_be(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETSCHED_STATE_DIR", "/proc/none")

    ended = call("run", "fft", "--batch", "4x16x16", "--config", "cpu-only")

    assert ended.code == 78
    assert "/proc/none" in ended.error


def test_a_gpu_that_the_config_insists_on(call: Call) -> None:
    Path("gpu.toml").write_text("[[device]]\nkind = 'gpu'\ncount = 9\n")

    ended = call("run", "fft", "--batch", "4x16x16", "--config", "gpu.toml")

    assert ended.code == 69
    assert "gpu" in ended.error


@pytest.mark.usefixtures("clean")
def test_hostile_names_stay_on_one_line_and_do_nothing_to_the_terminal(call: Call) -> None:
    ended = call("run", "fft", "--input", "a\nerror: b\x1b[31m\u202e[/x].npy")

    assert ended.code == 66
    assert ended.err.count("\n") == 1
    assert ended.err.rstrip("\n").isprintable()


@pytest.mark.usefixtures("files")
def test_a_full_disk_is_found_before_anything_is_computed(shell: Call) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    before = sorted(os.listdir())
    ended = shell("run", "fft", "--input", "good.npy", "--output", "y.npy", preexec_fn=small_files)

    assert ended.code == 73
    assert "no room" in ended.error
    assert sorted(os.listdir()) == before


def powerless() -> None:
    """From exec on, root may only read and write what belongs to root."""
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make files of another user")
@pytest.mark.usefixtures("files")
def test_files_and_folders_of_another_user(shell: Call) -> None:
    os.chown("good.npy", 65534, 65534)
    os.chmod("good.npy", 0o600)
    os.chown("folder", 65534, 65534)
    os.chmod("folder", 0o755)

    unreadable = shell("run", "fft", "--input", "good.npy", preexec_fn=powerless)
    flags = ("--batch", "4x16x16", "--output", "folder/y.npy")
    read_only = shell("run", "fft", *flags, preexec_fn=powerless)

    assert (unreadable.code, read_only.code) == (66, 73)
    assert "permission denied" in unreadable.error
    assert "Permission denied" in read_only.error
    assert os.listdir("folder") == []


def test_the_shipped_folder_has_the_configs_that_are_promised() -> None:
    names = {path.stem for path in shipped_folder().glob("*.toml")}

    assert names >= {"default", "cpu-only", "emulated-gpu"}
