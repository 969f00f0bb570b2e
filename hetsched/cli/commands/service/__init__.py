"""`hetsched service install|uninstall|status`: the daemon as a systemd user service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer.main

from hetsched.cli.app import do_nothing, new
from hetsched.cli.commands.service import install, status, uninstall

if TYPE_CHECKING:
    from typer._click import Command


def group() -> Command:
    app = new()
    app.callback(help="Run the daemon as a systemd user service.")(do_nothing)
    for module in (install, uninstall, status):
        app.command(module.__name__.rpartition(".")[2])(module.command)
    return typer.main.get_command(app)
