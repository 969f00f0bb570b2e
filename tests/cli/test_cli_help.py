from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import metadata

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from hetsched import __version__
from hetsched.cli import app

from .conftest import Call


def paths(command: object = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and subcommand, as the words that call it."""
    command = get_command(app._root) if command is None else command
    yield path
    if isinstance(command, TyperGroup):
        context = command.make_context("hetsched", ["x"], resilient_parsing=True)
        for name in command.list_commands(context):
            yield from paths(command.get_command(context, name), (*path, name))


def summaries(page: str) -> dict[str, str]:
    """Command -> its summary on a group's page; below the options, under headings."""
    _, _, tables = page.partition("\nOptions:\n")
    _, _, tables = tables.partition("\n\n")
    lines = [line for line in tables.splitlines() if line.startswith("  ")]
    return dict(line.split(maxsplit=1) for line in lines)


def test_every_page_fits_the_terminal_and_is_in_whole_sentences(
    call: Call, golden: Callable[[str, str], None]
) -> None:
    pages = {path: call(*path, "--help").out for path in paths()}
    for page in pages.values():
        assert max(map(len, page.splitlines())) <= 80
        assert not re.search(r"<=x|\d{10}|see `", page)
        assert not any(line.endswith("...") for line in page.splitlines()[1:])
        for summary in summaries(page).values():
            assert summary[0].isupper() and summary.endswith(".")
    per_workload = {("run",), ("submit",), ("plan",), ("models", "measure")}
    own = [pages[p] for p in pages if p not in per_workload and p[:-1] not in per_workload]
    toy = "diffusing_workload:Diffusion"
    own += [call(*path, toy, "--help").out for path in sorted(per_workload)]
    golden("help", "\n".join(own))


def test_without_words_there_is_help_and_a_version(call: Call) -> None:
    assert call().out == call("--help").out
    assert call("--version").out == f"hetsched {__version__}\n"


def test_a_workload_that_cannot_be_loaded_leaves_the_others_theirs(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = metadata.entry_points(group="hetsched.workloads")
    broken = metadata.EntryPoint("broken", "no.such:Thing", "hetsched.workloads")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [*points, broken])
    page = call("run", "--help").out
    assert "Batched FFTs" in page
    assert "broken" in page and "can't be loaded" in page


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("re", "result release retry"),
        ("run f", "fft"),
        ("run ma", "matrix_update map"),
        ("submit rx", ""),
        ("run fft --inp", "--input"),
        ("run fft --input x", ""),  # then the shell completes files
        ("run fft --direction i", "inverse"),
        ("run fft --config em", "emulated-gpu"),
        ("status -s queued,r", "queued,running"),
        ("models show he", "heat"),
        ("config ch", "check"),
    ],
)
def test_a_shell_completes_words(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: str, offered: str
) -> None:
    monkeypatch.setenv("_HETSCHED_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"hetsched {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert set(call().out.split()) >= set(offered.split())
    assert bool(call().out.split()) == bool(offered)


def test_a_shell_gets_its_script(call: Call) -> None:
    assert "_HETSCHED_COMPLETE=complete_bash" in call("completion", "bash").out
