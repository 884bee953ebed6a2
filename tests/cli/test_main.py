import subprocess
import sys
import textwrap

from typer.testing import CliRunner

from ntrm import __version__
from ntrm.cli.main import app

runner = CliRunner()


def test_version_and_module_entry():
    assert runner.invoke(app, ["--version"]).stdout == f"ntrm {__version__}\n"
    done = subprocess.run([sys.executable, "-m", "ntrm", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"ntrm {__version__}\n"


def test_an_interrupt_while_the_commands_are_imported_is_no_traceback():
    code = """
        import runpy, sys
        class Interrupt:
            def find_spec(self, name, path=None, target=None):
                if name == "ntrm.cli.main":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupt())
        runpy.run_module("ntrm", run_name="__main__")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_no_command_shows_the_help_and_an_unknown_one_is_wrong_usage():
    assert "Exit codes" in runner.invoke(app, ["--help"]).stdout
    assert runner.invoke(app, []).exit_code == 2
    assert runner.invoke(app, ["nonsense"]).exit_code == 2
