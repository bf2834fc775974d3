"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from .check import check
from .common import guarded
from .compare import compare
from .export import export
from .import_ import import_
from .methods import methods
from .plan import plan
from .profile import profile
from .run import run
from .show import show
from .simulate import simulate
from .solve import solve

app = typer.Typer(
    help="Pipeline-parallel training schedules: found, proven and run, within a memory limit on every rank.",
    epilog="Exit codes: 0 done; 1 the answer is no; 2 bad input or usage; 3 a rank failed; 130 interrupted.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (solve, simulate, check, compare, methods, show, profile, plan, run, export):
    app.command()(guarded(command))
app.command("import")(guarded(import_))


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"adaptpipe {version('adaptpipe')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None: ...
