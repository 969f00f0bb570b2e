"""Help of every command: fits 80 columns, complete sentences, no ranges of 19 digits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from hetsched.cli import app

from .conftest import Call

COLUMNS = 80


def paths(command: object = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and subcommand, as the words that call it."""
    command = get_command(app._root) if command is None else command
    yield path
    if isinstance(command, TyperGroup):
        context = command.make_context("hetsched", ["x"], resilient_parsing=True)
        for name in command.list_commands(context):
            yield from paths(command.get_command(context, name), (*path, name))


PAGES = list(paths())


def summaries(page: str) -> dict[str, str]:
    """Command -> its summary on a group's page; below the options, under headings."""
    _, _, tables = page.partition("\nOptions:\n")
    _, _, tables = tables.partition("\n\n")
    lines = [line for line in tables.splitlines() if line.startswith("  ")]
    return dict(line.split(maxsplit=1) for line in lines)


@pytest.mark.parametrize("path", PAGES, ids=" ".join)
def test_a_page_of_help_fits_the_terminal(call: Call, path: tuple[str, ...]) -> None:
    ended = call(*path, "--help")

    assert (ended.code, ended.err) == (0, "")
    assert max(map(len, ended.out.splitlines())) <= COLUMNS
    assert not re.search(r"<=x|\d{10}", ended.out)
    assert "see `" not in ended.out


@pytest.mark.parametrize("path", PAGES, ids=" ".join)
def test_summaries_are_whole_sentences_on_one_line(call: Call, path: tuple[str, ...]) -> None:
    page = call(*path, "--help").out

    assert not any(line.endswith("...") for line in page.splitlines()[1:])
    for summary in summaries(page).values():
        assert summary[0].isupper()
        assert summary.endswith(".")


def test_all_commands_and_workloads_have_a_page() -> None:
    words = {" ".join(path) for path in PAGES}

    assert words >= {"", "status", "run fft", "submit matrix_update", "plan fft", "config check"}
    assert words >= {"models measure fft"}


def test_a_workload_that_cannot_be_loaded_leaves_the_others_theirs(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = metadata.entry_points(group="hetsched.workloads")
    broken = metadata.EntryPoint("broken", "no.such:Thing", "hetsched.workloads")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [*points, broken])
    page = call("run", "--help").out
    assert "Batched 2D complex FFT" in page
    assert "broken" in page and "can't be loaded" in page
