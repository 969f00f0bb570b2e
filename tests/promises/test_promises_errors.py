"""Mistakes of users: one line of error, the exit code, and nothing left behind."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Place, call_here, refused

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
PR_CAPBSET_DROP = 24
FFT = ("run", "fft", "--batch", "4x16x16")


def header(shape: str) -> bytes:
    text = f"{{'descr': '<c8', 'fortran_order': False, 'shape': {shape}, }}\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A current folder full of what isn't an input, and of a good one; there is no daemon."""
    folder = tmp_path_factory.mktemp("errors")
    place = Place(folder)
    good = np.ones((4, 16, 16), "complex64")
    np.save(folder / "good.npy", good)
    np.save(folder / "flat.npy", good.ravel())
    np.save(folder / "objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    np.save(folder / "records.npy", np.zeros(3, dtype=[("a", "<f4"), ("b", "<i4")]))
    np.save(folder / "text.npy", np.array(["a", "b"]))
    whole = (folder / "good.npy").read_bytes()
    contents = {
        "short.npy": whole[:-1],
        "long.npy": whole + b"\x00",
        "empty.npy": b"",
        "pickle.npy": b"\x80\x04N.",
        "lies.npy": header("(1000000000000, 512, 512)") + bytes(64),
        "negative.npy": header("(-4, 16, 16)") + bytes(64),
        "expression.npy": header("__import__('os').system('touch gone')"),
        "there.npy": b"mine",
        "broken.toml": b"this is = not [TOML",
        "key.toml": b"[[device]]\nkind = 'cpu'\ncolour = 1\n",
        "value.toml": b"memory_limit = 'much'\n",
        "gpu.toml": b"[[device]]\nkind = 'gpu'\ncount = 9\n",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "dangling.npy").symlink_to("nowhere.npy")
    before = sorted(os.listdir(folder))
    yield place
    assert set(os.listdir(folder)) - set(before) <= {"state", "cache", "run"}
    assert (folder / "there.npy").read_bytes() == b"mine"


USAGE = [
    (("--batch", "256x512"), "got 2 numbers"),
    (("--batch", "9" * 5000 + "x2x2"), "characters"),
    ((), "batch"),
    (("--batch", "4x16x16", "--dtype", "complex46"), "complex64"),
    (("--bach", "4x16x16"), "did you mean --batch?"),
    (("--batch", "4x16x16", "surplus"), "surplus"),
    (("--batch", "4x16x16", "--memory-limit", "much"), "--memory-limit"),
    (("--batch", "4x16x16", "--priority", "99"), "--priority"),
    (("--batch", "4x16x16", "--devices", "cqu"), "did you mean cpu"),
    (("--batch", "4x16x16", "--seed", "-1"), "--seed"),
    (("--input", "a.npy", "--input", "b.npy"), "two files"),
    (("--input", "z=good.npy", "--batch", "4x16x16"), "z"),
    (("--batch", "4x16x16", "--output", "z=y.npy"), "no output 'z'"),
]
MACHINE = [
    (("--batch", "1000000000000x512x512"), "the largest load that fits is", 65),
    (("--batch", "4x16x16", "--devices", "gpu0"), "gpu0 is not available", 69),
    (("--input", "short.npy"), "truncated", 65),
    (("--input", "\udcff.npy"), "the name isn't UTF-8; rename the file", 65),
    (("--input", "a\nerror: b\x1b[31m\u202e[/x].npy"), "", 66),
    (("--input", "good.npy", "--output", "there.npy"), "exists", 73),
]
FILES: list[tuple[str, str | None, bool, str, int]] = [
    ("none.npy", None, False, "no such file", 66),
    ("dangling.npy", None, False, "nowhere.npy", 66),
    ("short.npy", None, False, "truncated", 65),
    ("long.npy", None, False, "more than its header says", 65),
    ("empty.npy", None, False, "is empty", 65),
    ("pickle.npy", None, False, "a pickle", 65),
    ("objects.npy", None, False, "pickled", 65),
    ("records.npy", None, False, "records", 65),
    ("text.npy", None, False, "only numbers", 65),
    ("flat.npy", None, False, "three axes", 65),
    ("lies.npy", None, False, "its header says", 65),
    ("negative.npy", None, False, "negative", 65),
    ("expression.npy", None, False, "header", 65),
    ("folder", None, False, "a directory", 65),
    ("fifo", None, False, "a FIFO", 65),
    ("/dev/null", None, False, "a device", 65),
    ("good.npy", "there.npy", False, "force=True", 73),
    ("good.npy", "good.npy", True, "is also the input", 65),
    ("good.npy", "folder", False, "is a directory", 73),
    ("good.npy", "none/y.npy", False, "there is no folder", 73),
    ("good.npy", "there.npy/y.npy", False, "there is no folder", 73),
]
"""Input, output, whether by force, words, exit code."""
OTHERS: list[tuple[tuple[str, ...], str, int]] = [
    (("run", "ftf", "--batch", "4x16x16"), "did you mean 'fft'?", 2),
    (("run", "no.such:Thing"), "no.such", 2),
    (("run", "toys:Toy", "--name", "\udcff"), "--name: '\\udcff' should be text in UTF-8", 2),
    (("submit", "toys:Toy", "--name", "\udcff"), "--name: '\\udcff' should be text", 2),
    (("submit", "fft", "--input", "\udcff.npy"), "the name isn't UTF-8; rename the file", 65),
    (("stauts",), "did you mean 'status'?", 2),
    (("status", "--jsno"), "did you mean --json?", 2),
    (("show", "9" * 23), "ID", 2),
    (("wait", "1", "--timeout", "soon"), "--timeout", 2),
    (("cancel",), "give the numbers of jobs, or --all", 2),
    (("status", "-t", "ended"), "choose from: queued, held", 2),
    (("ping",), "no daemon", 69),
    (("wait", "1"), "hetsched serve", 69),
    (("submit", "fft", "--batch", "4x16x16"), "no daemon", 69),
    ((*FFT, "--config", "nope"), "cpu-only", 66),
    ((*FFT, "--config", "none.toml"), "none.toml", 66),
    ((*FFT, "--config", "gpu.toml"), "gpu", 69),
    (("devices", "--config", "broken.toml"), "not valid TOML", 78),
    (("devices", "--config", "value.toml"), "memory_limit", 78),
    (("config", "check", "key.toml"), "device[0]", 78),
    (("serve", "--config", "key.toml"), "colour", 78),
    (("top",), "terminal", 2),
]
CASES = [
    *((("run", "fft", *flags), words, 2) for flags, words in USAGE),
    *((("run", "fft", *flags), words, code) for flags, words, code in MACHINE),
    *OTHERS,
]


def test_every_mistake_has_its_code_and_one_line(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place.folder)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    wrong = []
    for words, text, code in CASES:
        ended = place.call(*words) if words[0] == "serve" else call_here(capfd, *words)
        is_right = (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)
        if not (is_right and text in ended.error and ended.error.isprintable()):
            wrong.append((words, ended))
    assert wrong == []
    assert "Traceback" in call_here(capfd, *FFT, "--config", "none.toml", "--debug").err


@pytest.mark.parametrize(("x", "y", "force", "words", "code"), FILES)
def test_a_file_that_will_not_do_is_refused(
    engine: Any, place: Place, x: str, y: str | None, force: bool, words: str, code: int
) -> None:
    out = None if y is None else place.folder / y
    with refused(code, words):
        engine.submit("fft", place.folder / x, out=out, force=force).result(60)


def test_a_full_disk_is_found_before_anything_is_computed(place: Place) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    words = ("run", "fft", "--input", "good.npy", "--output", "y.npy")
    # or it would leave broken bytecode for later commands
    env = place.environment | {"PYTHONDONTWRITEBYTECODE": "1"}
    ended = place.call(*words, cwd=place.folder, preexec_fn=small_files, env=env)
    assert (ended.code, "no room" in ended.error) == (73, True)
    assert not (place.folder / "y.npy").exists()


def powerless() -> None:
    """From exec on, root may only read and write what belongs to root."""
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make files of another user")
def test_files_and_folders_of_another_user_are_66_and_73(place: Place, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.npy"
    np.save(theirs, np.ones((4, 16, 16)))
    for path, mode in ((theirs, 0o600), (tmp_path, 0o755)):
        os.chown(path, 65534, 65534)
        path.chmod(mode)
    unreadable = place.call("run", "fft", "--input", str(theirs), preexec_fn=powerless)
    read_only = place.call(*FFT, "--output", str(tmp_path / "y.npy"), preexec_fn=powerless)
    assert (unreadable.code, read_only.code) == (66, 73)
    assert "permission denied" in unreadable.error
    assert "Permission denied" in read_only.error
    assert os.listdir(tmp_path) == ["theirs.npy"]


def test_a_broken_pipe_ends_quietly(place: Place) -> None:
    with place.started("run", "--help") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) in (0, 141)
        assert process.stderr is not None and "Traceback" not in process.stderr.read()
