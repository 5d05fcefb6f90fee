"""`rookery`: the command line.

Exit codes: 0 finished · 2 bad config or usage · 3 env or worker failure · 4 checkpoint problem · 5 diverged · 128 + n
ended by signal n after a checkpoint · 1 anything else. What the user can mend is told in one message without a
traceback, unless `--debug` asks for it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from rookery.cli import cache, check, configs, doctor, evaluate, launch, names, plot, train, verify
from rookery.core.config.synonyms import keys_for
from rookery.core.errors import EnvError, RookeryError, UsageError
from rookery.core.system.command import enduring_streams, exit_place, own_code, stand_somewhere, told_exits

app = typer.Typer(
    name="rookery",
    help="Deep reinforcement learning that is correct by construction, exactly resumable, and fast.",
    epilog="Start with: rookery train cartpole-ppo · Completion of names and keys: rookery --install-completion",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich would double the time of --help
    pretty_exceptions_enable=False,
)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("list")(names.list_names)
app.command("explain")(names.explain)
app.command("check-env")(check.check_env)
app.command("plot")(plot.plot)
app.command("verify")(verify.verify)
app.command("doctor")(doctor.doctor)
app.command("cache")(cache.cache)
app.add_typer(configs.app, name="config")
app.add_typer(launch.app, name="launch")

# typer brings its own copy of click or uses the installed one, depending on its version:
# take the class it really raises.
_ClickException: type[Exception] = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")


def _version(wanted: bool) -> None:
    if wanted:
        from rookery import __version__

        typer.echo(f"rookery {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error. May stand anywhere."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Options of every command; `run` has handled --debug already."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    debug = "--debug" in arguments
    stand_somewhere()
    _see_current_folder()
    try:
        with told_exits():
            words = [text for text in arguments if text != "--debug"]
            code = app(words, prog_name="rookery", standalone_mode=False, obj=words)
        return code if isinstance(code, int) else 0
    except RookeryError as error:
        if debug:
            raise
        _complain(str(error), _own_traceback(error))
        return error.exit_code
    except SystemExit as error:
        if debug or "_ROOKERY_COMPLETE" in os.environ:  # a shell asks: it ends so
            raise
        _complain(f"{exit_place(error)}: sys.exit or os._exit was called ({error.code!r}), so the command did not end")
        return EnvError.exit_code
    except typer.Exit as error:
        return error.exit_code
    except _ClickException as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted")
        return 130


def main() -> None:
    """Entry point of the `rookery` script."""
    enduring_streams()
    logging.getLogger("rookery").propagate = False  # packages of envs give the root handlers that repeat every line
    sys.exit(run(sys.argv[1:]))


def _see_current_folder() -> None:
    """A script, unlike `python -m`, does not see modules of the current folder;
    `import:` and `--env module:Id` need them.

    At the end of the path, so that no file here hides an installed package.
    """
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())


def _own_traceback(error: RookeryError) -> str:
    """Where the env's own code raised, if nobody has shown that yet; what it raised is in the message."""
    cause = error.__cause__
    if not isinstance(error, EnvError) or error.shown or cause is None or isinstance(cause, RookeryError):
        return ""
    lines = own_code(cause)
    return f"Traceback of its own code, most recent call last:\n{lines}" if lines else ""


def _usage(error: Any) -> int:
    """Tell of a mistake in the command line itself."""
    option, context = getattr(error, "option_name", ""), getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)
    elif key := _key_of(option):
        _complain(error.format_message(), f"Keys of the config are written without dashes: {key}=VALUE")
    else:
        _complain(error.format_message(), f"Try: {context.command_path} --help" if context else "")
    return UsageError.exit_code


def _key_of(option: str) -> str:
    """The key of the config that somebody meant by an option: --algo.lr, or --total-timesteps of other libraries."""
    word = option.lstrip("-")
    return word if "." in word else " or ".join(keys_for(word))


def _complain(message: str, advice: str = "") -> None:
    typer.echo(f"error: {message}", err=True)
    if advice:
        typer.echo(advice, err=True)
