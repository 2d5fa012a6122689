"""The names that users import from `moldau`: all are there, type checkers know the same ones, none is loaded early."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import moldau
from moldau.exports import MODULES, NAMES

STUB = Path(moldau.__file__).with_suffix(".pyi")


def test_every_name_can_be_imported() -> None:
    for name in NAMES:
        assert getattr(moldau, name) is not None
    assert set(moldau.__all__) == set(NAMES) <= set(dir(moldau))
    assert not hasattr(moldau, "Nothing")


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    seen: dict[str, set[str]] = {}
    exported: set[str] = set()
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module != "moldau":
            seen.setdefault(node.module or "", set()).update(alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            exported = set(ast.literal_eval(node.value))
    assert seen == {module: set(names) for module, names in MODULES.items()}
    assert exported == set(NAMES)


def test_the_command_line_loads_no_client() -> None:
    """librdkafka takes longer to load than the help to print."""
    program = (
        "import sys\n"
        "from moldau.tools.main import main\n"
        "sys.argv = ['moldau', '--help']\n"
        "try:\n    main()\n"
        "finally:\n"
        "    heavy = ('confluent_kafka', 'cryptography', 'moldau.client.serializers')\n"
        "    sys.stderr.write(','.join(sorted(set(heavy) & set(sys.modules))))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stderr == ""


def test_every_error_of_the_client_is_exported() -> None:
    errors = importlib.import_module("moldau.client.errors")
    kinds = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.ClientError)
    }
    assert kinds == set(MODULES["moldau.client.errors"])
