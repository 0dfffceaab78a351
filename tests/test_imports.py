"""Imports go one way (design: core <- protocols, tasks, engines <- sweep <- cli), and the package loads light.

Read from the syntax trees of all files: an import within a function counts too. Run: pytest tests/test_imports.py
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "debate_local"
FILES = sorted(PACKAGE.rglob("*.py"))

# What each part may import of ours, beside itself. Parts that are not named may import everything.
MAY_IMPORT = {
    "core": [],
    "protocols": ["core"],
    "tasks": ["core"],
    "engines": ["core"],
    "sweep": ["core", "protocols", "tasks", "engines"],
    "trackers": ["core", "sweep", "analysis"],
    "analysis": ["core", "sweep.store"],
}
HEAVY = {"torch", "vllm", "transformers", "datasets"}
# Law 1: no input or output, no clock, no global random numbers.
IMPURE = {"io", "logging", "os", "pathlib", "random", "secrets", "socket", "sqlite3", "subprocess", "threading", "time"}


def name(path: Path) -> str:
    """core/chat.py -> core.chat"""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imported(path: Path, tree: ast.AST) -> Iterator[str]:
    """The full names of the modules that a file imports, within functions too."""
    package = ["debate_local", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            # `from package import module` imports the module; a mere name in a module does no harm here.
            yield from (f"{module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> Iterator[str]:
    """What a file imports of this package, without the package's name."""
    for module in imported(path, ast.parse(path.read_text(encoding="utf-8"))):
        if module.startswith("debate_local."):
            yield module.removeprefix("debate_local.")


def within(module: str, part: str) -> bool:
    return module == part or module.startswith(f"{part}.")


@pytest.mark.parametrize("path", FILES, ids=name)
def test_each_part_imports_only_what_lies_below_it(path: Path) -> None:
    part = path.relative_to(PACKAGE).parts[0]
    if part in MAY_IMPORT:
        allowed = [part, *MAY_IMPORT[part]]
        wrong = [module for module in ours(path) if not any(within(module, one) for one in allowed)]
        assert not wrong, f"{name(path)} imports {wrong}; {part} may import {allowed}"


def test_the_rules_speak_of_parts_that_exist() -> None:
    here = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert {"core", "protocols", "engines"} <= here & set(MAY_IMPORT)
    assert len(list(ours(PACKAGE / "protocols" / "debate.py"))) >= 5
    assert any(within(module, "core.chat") for module in ours(PACKAGE / "core" / "setting.py"))


@pytest.mark.parametrize("path", [f for f in FILES if within(name(f), "core")], ids=name)
def test_the_core_needs_the_standard_library_and_jinja2_only(path: Path) -> None:
    tops = {module.partition(".")[0] for module in imported(path, ast.parse(path.read_text(encoding="utf-8")))}
    allowed = {"debate_local", "jinja2"} if path.name == "prompts.py" else {"debate_local"}
    assert tops <= sys.stdlib_module_names | allowed


@pytest.mark.parametrize("path", [f for f in FILES if name(f).split(".")[0] in ("core", "protocols")], ids=name)
def test_core_and_protocols_do_nothing_but_think(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not {module.partition(".")[0] for module in imported(path, tree)} & IMPURE
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input", "eval", "exec"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_module_imports_a_heavy_package_when_it_is_loaded(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in [*tree.body, *(inner for outer in tree.body if isinstance(outer, ast.Try) for inner in outer.body)]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert not {module.partition(".")[0] for module in imported(path, node)} & HEAVY


@pytest.mark.parametrize(
    "program", ["import debate_local", "import debate_local.engines.cache, debate_local.core.scheduler"]
)
def test_importing_the_package_loads_nothing_heavy(program: str) -> None:
    code = f"import sys; {program}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_every_engine_and_protocol_file_is_found_without_loading_anything_heavy() -> None:
    code = (
        "import pkgutil, importlib, sys, debate_local.protocols, debate_local.engines, debate_local.tasks\n"
        "for package in (debate_local.protocols, debate_local.engines, debate_local.tasks):\n"
        "    for module in pkgutil.iter_modules(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        f"print(*sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
